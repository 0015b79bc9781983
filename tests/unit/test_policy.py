"""When failures of items fail the job, and how long an item waits before it is tried again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.errors import InvalidInput
from tidemill.domain.policy import MIN_SAMPLE, FailurePolicy
from tidemill.domain.retry import RetryPolicy


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
        ({"mode": "tolerate", "max_percent": 0}, 1, MIN_SAMPLE, True),
        ({"mode": "tolerate", "max_percent": 100}, 500, 500, False),
        ({"mode": "tolerate", "max_failed": 3, "max_percent": 50}, 4, 4, True),
        ({"mode": "tolerate", "max_failed": 900, "max_percent": 50}, 51, 100, True),
    ],
)
def test_a_policy_trips_beyond_its_bound_and_not_at_it(
    policy: dict[str, Any], failed: int, settled: int, trips: bool
) -> None:
    reason = FailurePolicy.parse(policy).tripped(failed=failed, settled=settled)
    assert (reason is not None) == trips


def test_the_reason_says_the_numbers() -> None:
    count = FailurePolicy("tolerate", max_failed=3).tripped(failed=4, settled=10)
    assert count == "tolerate: 4 items failed, 3 are tolerated"
    percent = FailurePolicy("tolerate", max_percent=2.5).tripped(failed=60, settled=1000)
    assert percent == "tolerate: 60 of 1000 settled items failed, 2.5 % are tolerated"


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"mode": "explode"}, "unknown failure policy 'explode'"),
        ({"mode": "tolerate"}, "needs max_failed or max_percent"),
        ({"mode": "tolerate", "max_failed": -1}, "not negative"),
        ({"mode": "tolerate", "max_percent": -0.5}, "not negative"),
        ({"mode": None}, "unknown failure policy None"),
        ({"mode": "tolerate", "max_failed": "ten"}, "number"),
        ({"mode": "tolerate", "max_percent": float("nan")}, "number"),
    ],
)
def test_an_impossible_policy_is_refused(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        FailurePolicy.parse(policy)


attempts, jitters = st.integers(1, 30_000), st.floats(0, 1)


@given(attempts, jitters, st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_wait_is_between_half_and_all_of_the_backoff_and_never_beyond_the_cap(
    attempt: int, jitter: float, backoff: float, cap: float
) -> None:
    delay = RetryPolicy(backoff=backoff, backoff_cap=cap).delay(attempt, jitter)
    full = min(cap, backoff * 2.0 ** min(attempt - 1, 60))
    assert 0 <= full / 2 <= delay <= full <= cap


@given(attempts, jitters)
def test_a_later_attempt_never_waits_less_with_the_same_jitter(attempt: int, jitter: float) -> None:
    policy = RetryPolicy()
    assert policy.delay(attempt, jitter) <= policy.delay(attempt + 1, jitter)


def test_the_backoff_doubles() -> None:
    policy = RetryPolicy(backoff=2, backoff_cap=60)
    assert [policy.delay(attempt, 1.0) for attempt in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
