"""What can become of a call to a service, in words that an item can keep."""

from dataclasses import dataclass
from http import HTTPStatus

LONGEST_AFTER_S = 7 * 86_400.0  # a service that asks for more is asked again after that
NOTHING_THERE = frozenset({204, 404, 410})
_REFUSALS = frozenset({429, 503})
_PASSING = frozenset({408, 425})
_DENIED = frozenset({401, 403, 407})
_FAULT_OF_ROWS = frozenset({400, 413, 414, 422})
_OK = range(200, 300)
_REDIRECTED = range(300, 400)
_SERVERS_FAULT = 500

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Answered:
    """What came back, whatever it says."""

    status: int
    body: bytes
    after: float | None  # in how many seconds to come back, if that is said


class CallFailed(Exception):
    """No answer that can be used. ``passing`` says that another try may bring one.

    ``splits`` says that a part of what was asked may be to blame: the rest is then asked by itself.
    """

    def __init__(self, code: str, reason: str, *, passing: bool = False, splits: bool = False) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.passing = passing
        self.splits = splits


class Refused(CallFailed):
    """Not now: too much is asked. ``after`` is in how many seconds to come back, if the service says so."""

    def __init__(self, reason: str, after: float | None = None, status: int = 429) -> None:
        super().__init__("throttled", reason, passing=True)
        self.after = None if after is None else min(after, LONGEST_AFTER_S)
        self.status = status  # as other exceptions of refusals have it, see domain/throttle.py
        self.headers = {} if self.after is None else {"Retry-After": f"{self.after:g}"}


def failure_of(status: int, after: float | None = None) -> CallFailed | None:
    """What a status means, if it is not a success."""
    words = f"the service answered {described(status)}"
    if status in _OK:
        return None
    if status in _REFUSALS:
        return Refused(words, after, status)
    if status in _DENIED:
        return CallFailed("service_denied", words)
    if status >= _SERVERS_FAULT or status in _PASSING:
        return CallFailed("service_error", words, passing=True, splits=True)
    if status in _REDIRECTED:
        return CallFailed("service_redirect", f"{words}, which leads nowhere")
    return CallFailed("service_refused", words, splits=status in _FAULT_OF_ROWS)


def unusable(reason: str) -> CallFailed:
    """An answer that came whole and says nothing that can be understood."""
    return CallFailed("invalid_answer", f"the service's answer cannot be used: {reason}", passing=True, splits=True)


def too_large(megabytes: int) -> CallFailed:
    return CallFailed("answer_too_large", f"the service's answer is larger than {megabytes} MB", splits=True)


def described(status: int) -> str:
    """In our own words: a server's could be anything."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
