"""Detects throttled responses (HTTP 429 and 503) in exceptions, and when to retry.

HTTP clients expose the status of a response in different attributes: httpx and requests in
``error.response.status_code``, aiohttp and urllib in ``error.status``, many clients of single services in
``error.status_code``. An exception raised ``from`` such an exception counts too.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

HTTP_TOO_MANY_REQUESTS, HTTP_SERVICE_UNAVAILABLE = 429, 503
EXCEPTION_CAUSES_MAX = 5  # length of the chain of causes that is checked


def is_throttling_error(error: BaseException) -> bool:
    """Return whether the called service throttled the request."""
    return any(
        extract_http_status(cause) in (HTTP_TOO_MANY_REQUESTS, HTTP_SERVICE_UNAVAILABLE)
        for cause in iterate_causes(error)
    )


def extract_http_status(error: BaseException) -> int | None:
    """Return the HTTP status of the response that an exception carries, if any."""
    for holder in (error, _get_attribute_or_none(error, "response")):
        for name in ("status_code", "status"):
            value = _get_attribute_or_none(holder, name)
            if isinstance(value, int):
                return int(value)
    return None


def extract_retry_after_s(error: BaseException) -> float | None:
    """Return the seconds of the Retry-After header. A date is relative to the Date header, or without it to now."""
    for cause in iterate_causes(error):
        for holder in (_get_attribute_or_none(cause, "response"), cause):
            wait = _parse_retry_after(_get_header_or_none(holder, "Retry-After"), _get_header_or_none(holder, "Date"))
            if wait is not None:
                return wait
    return None


def iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, the one it was raised from, and so on."""
    cause: BaseException | None = error
    for _ in range(EXCEPTION_CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _parse_retry_after(value: str | None, date: str | None) -> float | None:
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        seconds = count_seconds_until(value, date)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def count_seconds_until(then: str, date: str | None) -> float:
    """Return the seconds from a Date header, or without one from now, to a time; NaN if they are no valid dates."""
    try:
        now = _read_local_clock() if date is None else parsedate_to_datetime(date)
        return (parsedate_to_datetime(then) - now).total_seconds()
    except (TypeError, ValueError, OverflowError):  # not a valid date, or only one of them has a time zone
        return math.nan


def _read_local_clock() -> datetime:
    return datetime.now(UTC)  # noqa: TID251  the header is of another server, whose clock is unknown


def _get_header_or_none(holder: object, name: str) -> str | None:
    get = _get_attribute_or_none(_get_attribute_or_none(holder, "headers"), "get")
    try:
        value = get(name, None) or get(name.lower(), None)
    except Exception:  # noqa: BLE001  the attribute may be any object
        return None
    return value if isinstance(value, str) else None


def _get_attribute_or_none(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001  a user's property may raise anything
        return None
