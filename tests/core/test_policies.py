"""Tests of failure policies and of the retry backoff."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import InvalidInput
from tidemill.core.policies import FAILURE_PERCENT_MIN_ITEMS, FailurePolicy, RetryPolicy


@pytest.mark.parametrize(
    ("policy", "failed", "settled", "trips"),
    [
        ({}, 10**6, 10**6, False),
        ({"mode": "continue"}, 1, 1, False),
        ({"mode": "fail_fast"}, 0, 100, False),
        ({"mode": "fail_fast"}, 1, 100, True),
        ({"mode": "tolerate", "max_failed": 3}, 3, 3, False),
        ({"mode": "tolerate", "max_failed": 3}, 4, 4, True),
        ({"mode": "tolerate", "max_failed": 0}, 0, 100, False),
        ({"mode": "tolerate", "max_failed": 0}, 1, 100, True),
        ({"mode": "tolerate", "max_percent": 5}, 99, 99, False),
        ({"mode": "tolerate", "max_percent": 5}, 5, 100, False),
        ({"mode": "tolerate", "max_percent": 5}, 6, 100, True),
        ({"mode": "tolerate", "max_percent": 0.1}, 1, 1000, False),
        ({"mode": "tolerate", "max_percent": 0.1}, 2, 1000, True),
        ({"mode": "tolerate", "max_percent": 0}, 1, FAILURE_PERCENT_MIN_ITEMS, True),
        ({"mode": "tolerate", "max_percent": 100}, 500, 500, False),
        ({"mode": "tolerate", "max_failed": 3, "max_percent": 50}, 4, 4, True),
        ({"mode": "tolerate", "max_failed": 900, "max_percent": 50}, 51, 100, True),
    ],
)
def test_failure_policy_fails_job_above_its_limit_only(
    policy: dict[str, Any], failed: int, settled: int, trips: bool
) -> None:
    reason = FailurePolicy.from_json(policy).find_failure_reason(failed=failed, settled=settled)
    assert (reason is not None) == trips


def test_failure_policy_reason_contains_counts() -> None:
    count = FailurePolicy("tolerate", max_failed=3).find_failure_reason(failed=4, settled=10)
    assert count == "4 items failed; the failure policy tolerates 3"
    percent = FailurePolicy("tolerate", max_percent=2.5).find_failure_reason(failed=60, settled=1000)
    assert percent == "60 of 1000 settled items failed; the failure policy tolerates 2.5 %"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"mode": "explode"}, 'Unknown failure policy "explode"'),
        ({"mode": "tolerate"}, "requires max_failed or max_percent"),
        ({"mode": "tolerate", "max_failed": -1}, "must not be negative"),
        ({"mode": "tolerate", "max_percent": -0.5}, "must not be negative"),
        ({"mode": None}, 'Unknown failure policy "None"'),
        ({"mode": "tolerate", "max_failed": "ten"}, "number"),
        ({"mode": "tolerate", "max_percent": float("nan")}, "number"),
    ],
)
def test_invalid_failure_policy_is_rejected(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FailurePolicy.from_json(policy)


attempts, jitters = st.integers(1, 30_000), st.floats(0, 1)


@given(attempts, jitters, st.floats(0, 1e6), st.floats(0, 1e6))
def test_retry_delay_is_between_half_and_full_backoff_up_to_cap(
    attempt: int, jitter: float, backoff: float, cap: float
) -> None:
    delay = RetryPolicy(backoff=backoff, backoff_cap=cap).compute_delay(attempt, jitter)
    full = min(cap, backoff * 2.0 ** min(attempt - 1, 60))
    assert 0 <= full / 2 <= delay <= full <= cap


@given(attempts, jitters)
def test_retry_delay_never_shrinks_with_later_attempts(attempt: int, jitter: float) -> None:
    policy = RetryPolicy()
    assert policy.compute_delay(attempt, jitter) <= policy.compute_delay(attempt + 1, jitter)


def test_retry_backoff_doubles_up_to_cap() -> None:
    policy = RetryPolicy(backoff=2, backoff_cap=60)
    assert [policy.compute_delay(attempt, 1.0) for attempt in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
