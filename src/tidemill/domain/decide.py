"""From what a handler said to what is written: one pure function, one border."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, assert_never

from tidemill.domain.item import Item
from tidemill.domain.outcome import Done, Fail, NotFound, Outcome, Retry, Skip
from tidemill.domain.retry import MAX_THROTTLES, RetryPolicy
from tidemill.domain.status import ItemStatus
from tidemill.domain.throttle import is_throttle, retry_after

REASON_MAX, CODE_MAX = 2_000, 100
LONGEST_WAIT_S = 365 * 86_400.0
_NO_DETAILS: Mapping[str, Any] = {}
_OURS = frozenset(("row", "attempt", "retryable", "misses", "throttles"))  # what no handler can say of an error


@dataclass(slots=True)  # not frozen: one is made per item, and freezing costs 1 µs of its 0.4
class Verdict:
    """What becomes of one item after one attempt. ``delay`` is set exactly when it will be tried again."""

    seq: int
    status: ItemStatus
    attempts: int
    duration_ms: int
    result: bytes | None = None
    normalized: bytes | None = None
    error: bytes | None = None
    code: str | None = None
    delay: float | None = None


@dataclass(slots=True)
class Decision:
    """A verdict before its values are encoded."""

    status: ItemStatus
    result: Any = None
    normalized: Any = None
    error: dict[str, Any] | None = None
    delay: float | None = None
    charged: bool = True  # whether it counts as an attempt


def decide(item: Item, outcome: Outcome, policy: RetryPolicy, jitter: float, spacing: float = 1.0) -> Decision:
    """Turn an outcome into a decision; ``jitter`` is a random number the caller made, ``spacing`` widens backoff."""
    match outcome:
        case Done():
            return Decision(ItemStatus.DONE, outcome.result, outcome.normalized)
        case Skip():
            return Decision(ItemStatus.SKIPPED, error=_error("skipped", outcome.reason, retryable=False))
        case NotFound():
            return _not_found(item, outcome, policy)
        case Retry():
            return _retry(item, outcome, policy, jitter, spacing)
        case Fail():
            return Decision(ItemStatus.FAILED, error=failure(outcome))
        case Outcome():
            raise TypeError(f"{type(outcome).__name__} is not an outcome a handler may give")
        case _:
            assert_never(outcome)


def failure(outcome: Fail) -> dict[str, Any]:
    """What is kept of an item that cannot succeed."""
    return _error(outcome.code, outcome.reason, retryable=outcome.retryable, details=outcome.details)


def _not_found(item: Item, outcome: NotFound, policy: RetryPolicy) -> Decision:
    """By the number of attempts, or as a handler says that has another way to look, or none."""
    error = _error("not_found", outcome.reason, retryable=True)
    if outcome.again is None:
        again = item.attempt < policy.max_attempts_not_found
    else:
        again = outcome.again
        error |= {"misses": item.misses + 1} if again else {}
    if not again:
        return Decision(ItemStatus.NOT_FOUND, outcome.result, error=error)
    delay = policy.not_found_delay if outcome.after is None else _wait(outcome.after)
    return Decision(ItemStatus.RETRY_WAIT, error=error, delay=delay)


def _retry(item: Item, outcome: Retry, policy: RetryPolicy, jitter: float, spacing: float) -> Decision:
    """A refusal is not the item's fault: a good number of them are free. Anything else uses an attempt up."""
    throttled = bool(outcome.throttled)
    charged = item.throttles >= MAX_THROTTLES if throttled else outcome.charged
    if charged and item.attempt - item.misses >= policy.max_attempts:
        return Decision(ItemStatus.FAILED, error=_exhausted(outcome))
    error, delay = (
        _error(outcome.code, outcome.reason, retryable=True),
        policy.delay(item.attempt, jitter) * spacing,
    )
    if not charged:
        error["attempt"] = item.attempt
    if item.misses:
        error["misses"] = item.misses
    if throttled:
        error["throttles"] = throttles = item.throttles + 1
        delay = policy.delay_of_refusal(throttles, jitter)
    if outcome.after is not None:
        delay = _wait(outcome.after)
    return Decision(ItemStatus.RETRY_WAIT, error=error, delay=delay, charged=charged)


def from_exception(error: BaseException) -> Outcome:
    """Any exception a handler let go, as an outcome: its own if it raised one, else a retry."""
    if isinstance(error, Outcome):
        return error
    if isinstance(error, MemoryError):
        return Retry("the handler ran out of memory", code="memory")
    if isinstance(error, SystemExit):
        return Retry(f"the handler called exit({error.code!r})", code="exit")
    if is_throttle(error):
        return Retry(describe(error), after=retry_after(error), throttled=True)
    return Retry(describe(error))


def describe(error: BaseException) -> str:
    """An exception in a line; one that has no words for itself is still named."""
    name = type(error).__name__
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  a user's __str__ may raise anything
        words = ""
    return f"{name}: {words}" if words else name


def from_defect(defect: dict[str, Any]) -> Fail:
    """A record that could not be parsed never reaches a handler."""
    where = {str(name): value for name, value in defect.items() if name in ("line", "value", "byte_offset")}
    return Fail(str(defect.get("reason", "the record could not be read")), code="invalid", details=where)


def timed_out(seconds: float) -> Retry:
    return Retry(f"the handler took longer than {seconds:g} s", code="timeout")


def poisoned(deaths: int) -> Fail:
    return Fail(f"the process running it died {deaths} times while it ran alone", code="poison", retryable=True)


def _exhausted(outcome: Retry) -> dict[str, Any]:
    # A timeout stays a timeout: people look for it by that name. Other causes are kept in the reason.
    code = outcome.code if outcome.code in ("timeout", "memory", "throttled") else "exhausted"
    return _error(code, outcome.reason, retryable=True)


def completed(error: Mapping[str, Any], seq: int, attempts: int) -> dict[str, Any]:
    """An error with what its outcome says beside it: none of that is stored twice."""
    return {"attempt": attempts, "retryable": False, **error, "row": seq + 1}


def _error(code: str, reason: str, *, retryable: bool, details: Mapping[str, Any] = _NO_DETAILS) -> dict[str, Any]:
    details = {name: value for name, value in details.items() if name not in _OURS}
    error = {**details, "code": clean(code, CODE_MAX), "reason": clean(reason, REASON_MAX)}
    if retryable:
        error["retryable"] = True
    return error


def clean(text: object, most: int) -> str:
    """Text that PostgreSQL can store: a handler's message may carry NUL characters and halves of pairs."""
    if type(text) is str and len(text) <= most and text.isascii() and "\x00" not in text:
        return text
    return str(text)[:most].encode(errors="replace").decode().replace("\x00", "\ufffd")


def _wait(seconds: float) -> float:
    if not math.isfinite(seconds):  # TypeError for what is no number at all
        raise ValueError(f"Retry(after={seconds}): it must be a number of seconds")
    return min(max(float(seconds), 0.0), LONGEST_WAIT_S)
