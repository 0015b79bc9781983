"""Tests of decisions: every outcome, and the conversion of exceptions to outcomes."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill import Done, Fail, Item, NotFound, Outcome, Retry, Skip
from tidemill.core.decide import (
    ERROR_REASON_MAX_CHARS,
    add_unstored_error_fields,
    decide_from_outcome,
    make_poison_failure,
    make_timeout_retry,
    outcome_from_exception,
    outcome_from_unparsable_record,
)
from tidemill.core.policies import THROTTLE_DELAY_MAX_S, UNCHARGED_THROTTLES_MAX, RetryPolicy
from tidemill.core.status import ItemStatus

POLICY = RetryPolicy(max_attempts=3, max_attempts_not_found=2, backoff=2.0, not_found_delay=30.0)
S = ItemStatus


def item(attempt: int = 1) -> Item:
    return Item(UUID(int=7), 41, {"n": 1}, attempt)


@pytest.mark.parametrize(
    ("outcome", "attempt", "status", "code", "retryable", "delay"),
    [
        (Done(1), 1, S.DONE, None, None, None),
        (Done(), 9, S.DONE, None, None, None),
        (Skip("no need"), 1, S.SKIPPED, "skipped", False, None),
        (NotFound(), 1, S.RETRY_WAIT, "not_found", True, 30.0),
        (NotFound(), 2, S.NOT_FOUND, "not_found", True, None),
        (NotFound(), 7, S.NOT_FOUND, "not_found", True, None),
        (NotFound(again=True), 7, S.RETRY_WAIT, "not_found", True, 30.0),
        (NotFound(again=True, after=1), 1, S.RETRY_WAIT, "not_found", True, 1.0),
        (NotFound(again=False), 1, S.NOT_FOUND, "not_found", True, None),
        (Retry(), 1, S.RETRY_WAIT, "error", True, 2.0),
        (Retry(), 2, S.RETRY_WAIT, "error", True, 4.0),
        (Retry(after=11), 1, S.RETRY_WAIT, "error", True, 11.0),
        (Retry(after=0), 1, S.RETRY_WAIT, "error", True, 0.0),
        (Retry(after=-5), 1, S.RETRY_WAIT, "error", True, 0.0),
        (Retry(code="rate"), 2, S.RETRY_WAIT, "rate", True, 4.0),
        (Retry(), 3, S.FAILED, "exhausted", True, None),
        (Retry(code="rate"), 3, S.FAILED, "exhausted", True, None),
        (Retry(after=11), 3, S.FAILED, "exhausted", True, None),
        (make_timeout_retry(5), 1, S.RETRY_WAIT, "timeout", True, 2.0),
        (make_timeout_retry(5), 3, S.FAILED, "timeout", True, None),
        (Retry(code="memory"), 3, S.FAILED, "memory", True, None),
        (Fail(), 1, S.FAILED, "permanent", False, None),
        (Fail(code="schema", retryable=True), 1, S.FAILED, "schema", True, None),
        (make_poison_failure(3), 1, S.FAILED, "poison", True, None),
        (outcome_from_unparsable_record({"reason": "not JSON"}), 1, S.FAILED, "invalid", False, None),
    ],
)
def test_outcome_and_attempt_determine_status_error_and_delay(
    outcome: Outcome, attempt: int, status: ItemStatus, code: str | None, retryable: bool | None, delay: float | None
) -> None:
    decision = decide_from_outcome(item(attempt), outcome, POLICY, jitter=1.0)
    error = {} if decision.error is None else add_unstored_error_fields(decision.error, 41, attempt)
    assert (decision.status, error.get("code"), error.get("retryable")) == (status, code, retryable)
    assert decision.delay == delay


def test_done_keeps_result_and_normalized_value() -> None:
    decision = decide_from_outcome(item(), Done({"a": 1}, normalized=[2]), POLICY, 0.5)
    assert (decision.result, decision.normalized, decision.error) == ({"a": 1}, [2], None)


def test_stored_error_contains_row_reason_and_attempt() -> None:
    decision = decide_from_outcome(item(2), Fail("no such column"), POLICY, 0.5)
    assert decision.error == {"code": "permanent", "reason": "no such column"}
    assert add_unstored_error_fields(decision.error, 41, 2) == {
        "row": 42,
        "code": "permanent",
        "reason": "no such column",
        "retryable": False,
        "attempt": 2,
    }


def test_throttled_retry_error_names_uncharged_attempt() -> None:
    decision = decide_from_outcome(item(2), Retry("too many", throttled=True), POLICY, 0.5)
    assert decision.error is not None
    assert not decision.charged
    assert add_unstored_error_fields(decision.error, 41, 1)["attempt"] == 2


def test_error_reason_is_truncated_and_has_no_nul() -> None:
    decision = decide_from_outcome(item(), Fail("a\x00b" + "x" * 10_000), POLICY, 0.5)
    assert decision.error is not None
    reason = decision.error["reason"]
    assert "\x00" not in reason
    assert len(reason) == ERROR_REASON_MAX_CHARS


class Odd(Outcome):
    """An unknown outcome."""


def test_unknown_outcome_class_raises_type_error() -> None:
    with pytest.raises(TypeError, match="A handler returned Odd"):
        decide_from_outcome(item(), Odd(), POLICY, 0.5)


@given(st.sampled_from([Retry(), NotFound()]), st.integers(1, 50), st.integers(1, 50), st.floats(0, 1))
def test_item_is_retried_only_while_attempts_are_left(
    outcome: Outcome, attempt: int, limit: int, jitter: float
) -> None:
    policy = RetryPolicy(max_attempts=limit, max_attempts_not_found=limit)
    decision = decide_from_outcome(item(attempt), outcome, policy, jitter)
    assert (decision.status is S.RETRY_WAIT) == (attempt < limit) == (decision.delay is not None)


@pytest.mark.parametrize(
    ("error", "reason", "code"),
    [
        (ValueError("bad number"), "ValueError: bad number", "error"),
        (ValueError(), "ValueError", "error"),
        (KeyError("sku"), "KeyError: 'sku'", "error"),
        (MemoryError(), "The handler ran out of memory", "memory"),
        (SystemExit(3), "The handler called exit(3)", "exit"),
        (SystemExit(), "The handler called exit(None)", "exit"),
    ],
)
def test_exception_becomes_retry_with_reason_and_code(error: BaseException, reason: str, code: str) -> None:
    outcome = outcome_from_exception(error)
    assert isinstance(outcome, Retry)
    assert (outcome.reason, outcome.code, outcome.after) == (reason, code, None)


@pytest.mark.parametrize("outcome", [Done(1), NotFound(), Skip(), Retry(after=1), Fail()])
def test_raised_outcome_is_returned_unchanged(outcome: Outcome) -> None:
    assert outcome_from_exception(outcome) is outcome


@pytest.mark.parametrize("defect", [{}, {"line": 3}])
def test_defect_without_reason_gets_default_reason(defect: dict[str, Any]) -> None:
    assert outcome_from_unparsable_record(defect).reason == "The record could not be parsed"


def test_throttled_retry_is_free_and_backs_off_to_cap() -> None:
    waits = []
    for throttles in range(UNCHARGED_THROTTLES_MAX):
        last = Item(UUID(int=7), 41, None, attempt=3, throttles=throttles)
        decision = decide_from_outcome(last, Retry("429", throttled=True), POLICY, jitter=1.0)
        assert (decision.status, decision.charged) == (S.RETRY_WAIT, False)
        assert decision.error is not None
        assert decision.error["code"] == "throttled"
        assert decision.error["throttles"] == throttles + 1, "the count is stored for the next attempt"
        waits.append(decision.delay or 0.0)
    assert waits[:3] == [2.0, 4.0, 8.0]
    assert waits == sorted(waits)
    assert waits[-1] == THROTTLE_DELAY_MAX_S
    assert sum(waits) < 20 * 60, "an item that is always throttled does not keep its job open for hours"
    assert decide_from_outcome(item(), Retry(throttled=True, after=7), POLICY, 1.0).delay == 7


def test_item_throttled_too_often_is_charged_and_fails() -> None:
    first = Item(UUID(int=7), 41, None, attempt=1, throttles=UNCHARGED_THROTTLES_MAX)
    charged = decide_from_outcome(first, Retry(throttled=True), POLICY, 1.0)
    assert (charged.status, charged.charged) == (S.RETRY_WAIT, True)
    last = Item(UUID(int=7), 41, None, attempt=3, throttles=UNCHARGED_THROTTLES_MAX)
    failed = decide_from_outcome(last, Retry(throttled=True), POLICY, 1.0)
    assert failed.status is S.FAILED
    assert failed.error is not None
    assert failed.error["code"] == "throttled"


@given(st.integers(1, 5), st.integers(0, UNCHARGED_THROTTLES_MAX + 5), st.booleans())
def test_every_retry_uses_an_attempt_or_a_throttle_allowance(attempt: int, throttles: int, throttled: bool) -> None:
    """Every retry uses an attempt or an uncharged throttle, and both are limited."""
    before = Item(UUID(int=7), 0, None, attempt=attempt, throttles=throttles)
    decision = decide_from_outcome(before, Retry(throttled=throttled), POLICY, 0.5)
    assert decision.error is not None
    if decision.status is S.RETRY_WAIT:
        assert decision.charged or decision.error["throttles"] == throttles + 1 <= UNCHARGED_THROTTLES_MAX
        assert not decision.charged or attempt < POLICY.max_attempts


def test_retry_spacing_scales_only_computed_backoff() -> None:
    assert decide_from_outcome(item(2), Retry(), POLICY, 1.0, backoff_factor=3).delay == 12
    assert decide_from_outcome(item(2), Retry(after=5), POLICY, 1.0, backoff_factor=3).delay == 5
    assert decide_from_outcome(item(1), NotFound(), POLICY, 1.0, backoff_factor=3).delay == 30


def test_misses_are_counted_apart_from_failed_attempts() -> None:
    """Misses before errors do not reduce the attempts for errors, and they are remembered."""
    missed = decide_from_outcome(Item(UUID(int=7), 41, {}, 2, misses=1), NotFound(again=True), POLICY, jitter=1.0)
    assert (missed.error or {})["misses"] == 2
    failing = [Item(UUID(int=7), 41, {}, attempt, misses=2) for attempt in (3, 4, 5)]
    decisions = [decide_from_outcome(one, Retry(), POLICY, jitter=1.0) for one in failing]
    assert [decision.status for decision in decisions] == [S.RETRY_WAIT, S.RETRY_WAIT, S.FAILED]
    assert [(decision.error or {}).get("misses") for decision in decisions] == [2, 2, None]
    assert "misses" not in (decide_from_outcome(item(1), NotFound(), POLICY, jitter=1.0).error or {})


def test_not_found_keeps_near_match_result_when_final() -> None:
    assert decide_from_outcome(item(2), NotFound(result={"near": 1}), POLICY, jitter=1.0).result == {"near": 1}
    assert decide_from_outcome(item(1), NotFound(result={"near": 1}), POLICY, jitter=1.0).result is None


def test_handler_details_cannot_override_engine_error_fields() -> None:
    details = {"row": "abc", "attempt": "zz", "retryable": True, "misses": 9, "sku": 7}
    decision = decide_from_outcome(item(2), Fail("no", details=details), POLICY, 0.5)
    assert decision.error == {"sku": 7, "code": "permanent", "reason": "no"}
    told = add_unstored_error_fields(decision.error, 41, 2)
    assert (told["sku"], told["row"], told["attempt"], told["retryable"]) == (7, 42, 2, False)
