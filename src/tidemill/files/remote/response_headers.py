"""Parses the status and headers of a response."""

import math
import re
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import httpx2

from tidemill.core.errors import InvalidInput
from tidemill.core.throttling import count_seconds_until

HTTP_OK, HTTP_PARTIAL_CONTENT = HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT
REDIRECT_STATUSES = {301, 302, 303, 307, 308}
TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}  # retried
ACCEPTED_CONTENT_ENCODINGS = {
    "",
    "identity",
    "gzip",
    "x-gzip",
    "zstd",
}  # the readers detect these compressions from the content
_CONTENT_RANGE = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_STRONG_ETAG = re.compile(r'"[!#-~]*"')
_DECIMAL_NUMBER = re.compile(r"[0-9]{1,30}")


@dataclass(frozen=True, slots=True)
class ContentRange:
    first: int
    last: int
    total: int


def describe_http_status(status: int) -> str:
    """Return a message for a status, without the reason phrase that the server sent."""
    try:
        return f"the server responded with {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server responded with {status}"


def parse_content_length(headers: httpx2.Headers) -> int | None:
    """Return Content-Length; None for chunked transfer encoding, which marks its end.

    Raises:
        InvalidInput: Both are missing, so a truncated file could not be detected.
    """
    if "transfer-encoding" in headers:
        return None
    text = headers.get("content-length", "")
    if not _DECIMAL_NUMBER.fullmatch(text):
        raise InvalidInput("the server sent no Content-Length, so a truncated download could not be detected")
    return int(text)


def check_content_encoding(headers: httpx2.Headers) -> None:
    encoding = headers.get("content-encoding", "").strip().lower()
    if encoding not in ACCEPTED_CONTENT_ENCODINGS:
        raise InvalidInput(f"the server used the content encoding {encoding[:20]!r}, which was not requested")


def parse_content_range(headers: httpx2.Headers) -> ContentRange | None:
    match = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip().lower())
    return ContentRange(*(int(number) for number in match.groups())) if match else None


def choose_http_validator(headers: httpx2.Headers) -> str | None:
    """Return a strong validator of the file (RFC 9110, 8.8): a strong ETag, or a Last-Modified at least 1 s old."""
    tag = headers.get("etag", "")
    if _STRONG_ETAG.fullmatch(tag):
        return tag
    changed, now = _parse_http_date(headers.get("last-modified")), _parse_http_date(headers.get("date"))
    if changed is None or now is None or (now - changed).total_seconds() < 1:
        return None
    return headers["last-modified"] if headers["last-modified"].isascii() else None


def parse_retry_after(headers: httpx2.Headers) -> float | None:
    """Return the seconds in Retry-After. A date is compared with the server's Date header, or with the clock."""
    text = headers.get("retry-after", "").strip()
    if _DECIMAL_NUMBER.fullmatch(text):
        return float(text)
    seconds = count_seconds_until(text, headers.get("date"))
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _parse_http_date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):  # malformed header
        return None
    return moment if moment.tzinfo is not None else None
