"""From what a handler said, or ran into, to a verdict."""

import random
from collections.abc import Sequence
from typing import Any

from tidemill.core.decide import (
    Verdict,
    build_failure_error,
    decide_outcome,
    describe_exception,
    outcome_from_exception,
)
from tidemill.core.item_error import ItemError
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Done, Fail, Outcome
from tidemill.core.status import ItemStatus
from tidemill.core.throttling import is_throttling_error
from tidemill.engine.learned_columns import LearnedColumns
from tidemill.limits.admission import is_throttle_reported, mark_throttle_reported
from tidemill.store.jsonb import encode_json, encode_json_values

MAX_RESULT_BYTES = 1024 * 1024  # a verdict must fit into an area of the logbook

_jitter = random.Random().random  # noqa: S311  spreads retries, guards no secret


def make_verdict(
    item: Item,
    outcome: Outcome,
    handler: Handler,
    duration_ms: int,
    columns: LearnedColumns | None = None,
    spacing: float = 1.0,
) -> Verdict:
    """Decide, and encode. What cannot be decided, encoded or stored is the handler's failure, not ours."""
    if type(outcome) is Fail:
        return _make_failed_verdict(item, outcome, duration_ms)
    try:
        decision = decide_outcome(item, outcome, handler.retry, _jitter(), spacing)
        result = None if decision.result is None else encode_json(decision.result)
        normalized = None if decision.normalized is None else encode_json(decision.normalized)
        _check_result_size(result, normalized)
        if result is not None and columns is not None:
            columns.learn_from_result(decision.result, result)
    except Exception as problem:  # noqa: BLE001  a user's object may raise anything while it is looked at
        reason = f"the handler returned something that cannot be stored: {describe_exception(problem)}"
        decision = decide_outcome(item, Fail(reason, code="invalid_result"), handler.retry, 0.0)
        result = normalized = None
    error = code = None
    if decision.error is not None:
        error, code = encode_json(decision.error), str(decision.error["code"])
    attempts = item.attempt if decision.charged else item.attempt - 1
    return Verdict(item.seq, decision.status, attempts, duration_ms, result, normalized, error, code, decision.delay)


def _make_failed_verdict(item: Item, outcome: Fail, duration_ms: int) -> Verdict:
    """The same for a failure, by the shortest way: of a file in which every row is bad this is most of the work."""
    try:
        told = build_failure_error(outcome)
        error = encode_json(told)
    except Exception as problem:  # noqa: BLE001  as above
        reason = f"the handler returned something that cannot be stored: {describe_exception(problem)}"
        told = build_failure_error(Fail(reason, code="invalid_result"))
        error = encode_json(told)
    return Verdict(item.seq, ItemStatus.FAILED, item.attempt, duration_ms, error=error, code=told["code"])


def make_failed_verdicts(items: Sequence[Item], error_details: Sequence[ItemError], duration_ms: int) -> list[Verdict]:
    """The same for many. ``said`` is of each its code, its reason and its details."""
    try:
        errors = encode_json_values(error_details)
    except Exception:  # noqa: BLE001  one of them is to blame: each by itself
        return [
            _make_failed_verdict(item, _fail_from_error(one), duration_ms)
            for item, one in zip(items, error_details, strict=True)
        ]
    status = ItemStatus.FAILED
    return [
        Verdict(item.seq, status, item.attempt, duration_ms, None, None, error, one["code"])
        for item, one, error in zip(items, error_details, errors, strict=True)
    ]


def _fail_from_error(error: ItemError) -> Fail:
    details = {name: value for name, value in error.items() if name not in ("code", "reason")}
    return Fail(error["reason"], code=error["code"], details=details)


def _check_result_size(result: bytes | None, normalized: bytes | None) -> None:
    size = len(result or b"") + len(normalized or b"")
    if size > MAX_RESULT_BYTES:
        raise ValueError(f"{size} bytes are more than the {MAX_RESULT_BYTES} a result may have")


def to_outcome(value: Any) -> Outcome:
    return value if isinstance(value, Outcome) else Done(value)


def outcome_from_error(error: BaseException, handler: Handler) -> Outcome:
    # A refusal is never permanent, though the class of exception that carries it may be, for its other statuses.
    if handler.permanent and isinstance(error, handler.permanent) and not is_throttling_error(error):
        return Fail(describe_exception(error))
    outcome = outcome_from_exception(error)
    if is_throttle_reported(error):
        mark_throttle_reported(outcome)
    return outcome
