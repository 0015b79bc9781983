"""Tests of the choice of the next job: fair between owners, by priority, with a limit per owner."""

import random
from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.lane import choose_fair_job, count_job_as_running, filter_claimable_jobs, find_hinted_job
from tidemill.store.batch_leases import ClaimableJob


def job(number: int, owner: int = 1, priority: int = 0, *, turning: bool = False, of_owner: int = 0) -> ClaimableJob:
    return ClaimableJob(UUID(int=number), owner, "test", priority, turning, of_owner)


jobs = st.lists(
    st.builds(
        job,
        st.integers(0, 10**6),
        st.integers(1, 5),
        st.integers(-100, 100),
        turning=st.booleans(),
        of_owner=st.integers(0, 9),
    ),
    min_size=1,
    max_size=30,
    unique_by=lambda each: each.id,
)


def test_owner_at_running_job_limit_cannot_start_another_job() -> None:
    waiting, others = job(1, of_owner=3), job(9, owner=2)
    turning = [job(number, turning=True, of_owner=3) for number in range(2, 5)]
    assert filter_claimable_jobs([waiting, *turning, others], 3) == [*turning, others]
    assert filter_claimable_jobs([waiting, *turning, others], 4) == [waiting, *turning, others]


@given(jobs, st.integers(1, 6))
def test_startable_jobs_are_running_or_below_owner_limit(found: list[ClaimableJob], limit: int) -> None:
    allowed = filter_claimable_jobs(found, limit)
    for each in found:
        assert (each in allowed) == (each.turning or each.owner_turning < limit)


def test_started_job_counts_towards_owner_limit_immediately() -> None:
    first, second, foreign = job(1), job(2), job(3, owner=2)
    then = count_job_as_running([first, second, foreign], first)
    assert filter_claimable_jobs(then, 1) == [job(1, turning=True, of_owner=1), foreign]
    assert count_job_as_running(then, then[0]) == then, "continuing a running job starts no new one"


@given(jobs, st.integers())
def test_choose_fair_job_returns_one_of_the_candidates(found: list[ClaimableJob], seed: int) -> None:
    assert choose_fair_job(found, random.Random(seed)) in found


def shares(found: list[ClaimableJob], turns: int = 4_000) -> dict[int, float]:
    rng = random.Random(1)
    chosen = Counter(choose_fair_job(found, rng).id.int for _ in range(turns))
    return {number: n / turns for number, n in chosen.items()}


def test_owner_with_many_jobs_gets_same_share_as_owner_with_one() -> None:
    crowd = [job(number, owner=1) for number in range(1, 100)]
    assert 0.45 < shares([*crowd, job(1_000, owner=2)])[1_000] < 0.55


def test_priority_step_doubles_share_of_claims() -> None:
    share = shares([job(1), job(2, priority=1)])
    assert 0.62 < share[2] < 0.71


def test_lowest_priority_job_is_not_starved() -> None:
    weights = [
        choose_fair_job([job(1, priority=-100), job(2, priority=-20)], random.Random(seed)) for seed in range(200)
    ]
    assert {each.id.int for each in weights} == {1, 2}


def test_hinted_job_is_claimed_first_when_claimable() -> None:
    first, second, third = job(1), job(2), job(3)
    assert find_hinted_job([first, second, third], [UUID(int=9), second.id, first.id]) == second
    assert find_hinted_job([first], [second.id]) is None
    assert find_hinted_job([first], []) is None
