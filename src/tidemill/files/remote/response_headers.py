"""What the head of an answer says."""

import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from tidemill.core.errors import InvalidInput

HTTP_OK, HTTP_PARTIAL_CONTENT = HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT
REDIRECT_STATUSES = {301, 302, 303, 307, 308}
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}  # and so worth another try
ACCEPTED_CONTENT_ENCODINGS = {
    "",
    "identity",
    "gzip",
    "x-gzip",
    "zstd",
}  # the formats recognize these by their first bytes
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_STRONG_ETAG = re.compile(r'"[!#-~]*"')
_DECIMAL_NUMBER = re.compile(r"[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class ContentRange:
    first: int
    last: int
    total: int


def describe_status(status: int) -> str:
    """In our own words: a server's could be anything."""
    try:
        return f"the server answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server answered {status}"


def parse_content_length(headers: httpx2.Headers) -> int | None:
    """The announced length; None when the body is in chunks, which have an end of their own.

    Raises:
        InvalidInput: Nothing would tell the end of the file from a broken connection.
    """
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "")
    if not _DECIMAL_NUMBER.fullmatch(text):
        raise InvalidInput(
            "the server does not say how long the file is: a part of it could not be told from the whole"
        )
    return int(text)


def check_content_encoding(headers: httpx2.Headers) -> None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ACCEPTED_CONTENT_ENCODINGS:
        raise InvalidInput(f"the server sends the file in the encoding {encoding[:20]!r}, which it was not asked for")


def parse_content_range(headers: httpx2.Headers) -> ContentRange | None:
    found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip().lower())
    return ContentRange(*(int(number) for number in found.groups())) if found else None


def choose_validator(headers: httpx2.Headers) -> str | None:
    """What tells this very version from any other (RFC 9110, 8.8): a strong tag, or a time that is past."""
    tag = headers.get("etag", "")
    if _STRONG_ETAG.fullmatch(tag):
        return tag
    changed, now = _parse_http_date(headers.get("last-modified")), _parse_http_date(headers.get("date"))
    if changed is None or now is None or (now - changed).total_seconds() < 1:
        return None
    return headers["last-modified"] if headers["last-modified"].isascii() else None


def parse_retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds to wait; a moment is compared with the server's own clock."""
    text = headers.get("retry-after", "").strip()
    if _DECIMAL_NUMBER.fullmatch(text):
        return float(text)
    until, now = _parse_http_date(text), _parse_http_date(headers.get("date"))
    return None if until is None or now is None else max(0.0, (until - now).total_seconds())


def _parse_http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # the server may have written anything
        return None
    return moment if moment.tzinfo is not None else None
