"""From what a handler said, or ran into, to a verdict."""

import random
from collections.abc import Sequence
from typing import Any

from tidemill.domain.decide import Verdict, decide, describe, failure, from_exception
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Done, Fail, Outcome
from tidemill.domain.status import ItemStatus
from tidemill.domain.throttle import is_throttle
from tidemill.engine.columns import JobColumns
from tidemill.engine.limits.permit import is_told, set_told
from tidemill.store.json import encode, encode_lines

RESULT_MAX_BYTES = 1024 * 1024  # a verdict must fit into an area of the logbook

_jitter = random.Random().random  # noqa: S311  spreads retries, guards no secret


def verdict_of(
    item: Item,
    outcome: Outcome,
    handler: Handler,
    duration_ms: int,
    columns: JobColumns | None = None,
    spacing: float = 1.0,
) -> Verdict:
    """Decide, and encode. What cannot be decided, encoded or stored is the handler's failure, not ours."""
    if type(outcome) is Fail:
        return _failed(item, outcome, duration_ms)
    try:
        decision = decide(item, outcome, handler.retry, _jitter(), spacing)
        result = None if decision.result is None else encode(decision.result)
        normalized = None if decision.normalized is None else encode(decision.normalized)
        _check_size(result, normalized)
        if result is not None and columns is not None:
            columns.see(decision.result, result)
    except Exception as problem:  # noqa: BLE001  a user's object may raise anything while it is looked at
        reason = f"the handler returned something that cannot be stored: {describe(problem)}"
        decision = decide(item, Fail(reason, code="invalid_result"), handler.retry, 0.0)
        result = normalized = None
    error = code = None
    if decision.error is not None:
        error, code = encode(decision.error), str(decision.error["code"])
    attempts = item.attempt if decision.charged else item.attempt - 1
    return Verdict(item.seq, decision.status, attempts, duration_ms, result, normalized, error, code, decision.delay)


def _failed(item: Item, outcome: Fail, duration_ms: int) -> Verdict:
    """The same for a failure, by the shortest way: of a file in which every row is bad this is most of the work."""
    try:
        told = failure(outcome)
        error = encode(told)
    except Exception as problem:  # noqa: BLE001  as above
        reason = f"the handler returned something that cannot be stored: {describe(problem)}"
        told = failure(Fail(reason, code="invalid_result"))
        error = encode(told)
    return Verdict(item.seq, ItemStatus.FAILED, item.attempt, duration_ms, error=error, code=told["code"])


def failures_of(items: Sequence[Item], said: Sequence[dict[str, Any]], duration_ms: int) -> list[Verdict]:
    """The same for many. ``said`` is of each its code, its reason and its details."""
    try:
        errors = encode_lines(said)
    except Exception:  # noqa: BLE001  one of them is to blame: each by itself
        return [_failed(item, _fail(one), duration_ms) for item, one in zip(items, said, strict=True)]
    status = ItemStatus.FAILED
    return [
        Verdict(item.seq, status, item.attempt, duration_ms, None, None, error, one["code"])
        for item, one, error in zip(items, said, errors, strict=True)
    ]


def _fail(said: dict[str, Any]) -> Fail:
    details = {name: value for name, value in said.items() if name not in ("code", "reason")}
    return Fail(said["reason"], code=said["code"], details=details)


def _check_size(result: bytes | None, normalized: bytes | None) -> None:
    size = len(result or b"") + len(normalized or b"")
    if size > RESULT_MAX_BYTES:
        raise ValueError(f"{size} bytes are more than the {RESULT_MAX_BYTES} a result may have")


def outcome_of(value: Any) -> Outcome:
    return value if isinstance(value, Outcome) else Done(value)


def translate(error: BaseException, handler: Handler) -> Outcome:
    # A refusal is never permanent, though the class of exception that carries it may be, for its other statuses.
    if handler.permanent and isinstance(error, handler.permanent) and not is_throttle(error):
        return Fail(describe(error))
    outcome = from_exception(error)
    if is_told(error):
        set_told(outcome)
    return outcome
