"""What the head of an answer says."""

import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from tidemill.domain.errors import InvalidInput

OK, PARTIAL = HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT
REDIRECTS = {301, 302, 303, 307, 308}
PASSING = {408, 425, 429, 500, 502, 503, 504}  # and so worth another try
KEPT_ENCODINGS = {"", "identity", "gzip", "x-gzip", "zstd"}  # the formats recognize these by their first bytes
_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_STRONG_TAG = re.compile(r'"[!#-~]*"')
_NUMBER = re.compile(r"[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class Range:
    first: int
    last: int
    total: int


def describe(status: int) -> str:
    """In our own words: a server's could be anything."""
    try:
        return f"the server answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server answered {status}"


def length_of(headers: httpx2.Headers) -> int | None:
    """The announced length; None when the body is in chunks, which have an end of their own.

    Raises:
        InvalidInput: Nothing would tell the end of the file from a broken connection.
    """
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "")
    if not _NUMBER.fullmatch(text):
        raise InvalidInput(
            "the server does not say how long the file is: a part of it could not be told from the whole"
        )
    return int(text)


def refuse_encoding(headers: httpx2.Headers) -> None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in KEPT_ENCODINGS:
        raise InvalidInput(f"the server sends the file in the encoding {encoding[:20]!r}, which it was not asked for")


def range_of(headers: httpx2.Headers) -> Range | None:
    found = _RANGE.fullmatch(headers.get("content-range", "").strip().lower())
    return Range(*(int(number) for number in found.groups())) if found else None


def validator_of(headers: httpx2.Headers) -> str | None:
    """What tells this very version from any other (RFC 9110, 8.8): a strong tag, or a time that is past."""
    tag = headers.get("etag", "")
    if _STRONG_TAG.fullmatch(tag):
        return tag
    changed, now = _moment(headers.get("last-modified")), _moment(headers.get("date"))
    if changed is None or now is None or (now - changed).total_seconds() < 1:
        return None
    return headers["last-modified"] if headers["last-modified"].isascii() else None


def retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds to wait; a moment is compared with the server's own clock."""
    text = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    until, now = _moment(text), _moment(headers.get("date"))
    return None if until is None or now is None else max(0.0, (until - now).total_seconds())


def _moment(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # the server may have written anything
        return None
    return moment if moment.tzinfo is not None else None
