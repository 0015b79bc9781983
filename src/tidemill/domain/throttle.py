"""Whether an exception says "you ask too much", and when to come back.

The libraries people call services with put the status of an answer in one of a few places: httpx and requests in
``error.response.status_code``, aiohttp and urllib in ``error.status``, many clients of single services in
``error.status_code``. An exception raised ``from`` such a one counts too.
"""

import math
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import Any

TOO_MANY_REQUESTS, UNAVAILABLE = 429, 503
DEEPEST = 5  # causes that are looked at


def is_throttle(error: BaseException) -> bool:
    """Whether the other side refused for now: the same call may succeed later, and less often."""
    return any(status_of(cause) in (TOO_MANY_REQUESTS, UNAVAILABLE) for cause in _causes(error))


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an exception carries, if it does."""
    for holder in (error, _get(error, "response")):
        for name in ("status_code", "status"):
            value = _get(holder, name)
            if isinstance(value, int):
                return int(value)
    return None


def retry_after(error: BaseException) -> float | None:
    """The seconds that the answer asks to wait; a date is compared with the answer's own, not with our clock."""
    for cause in _causes(error):
        for holder in (_get(cause, "response"), cause):
            wait = _wait(_header(holder, "Retry-After"), _header(holder, "Date"))
            if wait is not None:
                return wait
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    for _ in range(DEEPEST):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


def _wait(said: str | None, date: str | None) -> float | None:
    if said is None:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = _between(date, said)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _between(date: str | None, then: str) -> float:
    try:
        return (parsedate_to_datetime(then) - parsedate_to_datetime(date or "")).total_seconds()
    except (
        TypeError,
        ValueError,
        OverflowError,
    ):  # no date, none that there can be, or one with a zone and one without
        return math.nan


def _header(holder: object, name: str) -> str | None:
    get = _get(_get(holder, "headers"), "get")
    try:
        value = get(name, None) or get(name.lower(), None)
    except Exception:  # noqa: BLE001  what is called headers there may be anything
        return None
    return value if isinstance(value, str) else None


def _get(holder: object, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # noqa: BLE001  a user's property may raise anything
        return None
