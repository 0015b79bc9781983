"""Which job next: fair between owners, then by priority, and not too many jobs of one owner."""

import random
from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.claim import choose, prefer, startable, started
from tidemill.store.claim import Runnable


def job(number: int, owner: int = 1, priority: int = 0, *, turning: bool = False, of_owner: int = 0) -> Runnable:
    return Runnable(UUID(int=number), owner, "test", priority, turning, of_owner)


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


def test_an_owner_with_enough_jobs_turning_gets_no_further_one() -> None:
    waiting, others = job(1, of_owner=3), job(9, owner=2)
    turning = [job(number, turning=True, of_owner=3) for number in range(2, 5)]
    assert startable([waiting, *turning, others], 3) == [*turning, others]
    assert startable([waiting, *turning, others], 4) == [waiting, *turning, others]


@given(jobs, st.integers(1, 6))
def test_what_turns_goes_on_and_nobody_is_held_back_below_the_limit(found: list[Runnable], limit: int) -> None:
    allowed = startable(found, limit)
    for each in found:
        assert (each in allowed) == (each.turning or each.owner_turning < limit)


def test_a_job_that_was_just_started_counts_at_once() -> None:
    first, second, foreign = job(1), job(2), job(3, owner=2)
    then = started([first, second, foreign], first)
    assert startable(then, 1) == [job(1, turning=True, of_owner=1), foreign]
    assert started(then, then[0]) == then, "going on with it starts nothing"


@given(jobs, st.integers())
def test_the_chosen_one_is_one_of_them(found: list[Runnable], seed: int) -> None:
    assert choose(found, random.Random(seed)) in found


def shares(found: list[Runnable], turns: int = 4_000) -> dict[int, float]:
    rng = random.Random(1)
    chosen = Counter(choose(found, rng).id.int for _ in range(turns))
    return {number: n / turns for number, n in chosen.items()}


def test_an_owner_with_many_jobs_gets_no_more_turns_than_one_with_a_single_job() -> None:
    crowd = [job(number, owner=1) for number in range(1, 100)]
    assert 0.45 < shares([*crowd, job(1_000, owner=2)])[1_000] < 0.55


def test_a_step_of_priority_doubles_the_share() -> None:
    share = shares([job(1), job(2, priority=1)])
    assert 0.62 < share[2] < 0.71


def test_the_lowest_priority_is_not_starved_for_ever_by_its_owner() -> None:
    weights = [choose([job(1, priority=-100), job(2, priority=-20)], random.Random(seed)) for seed in range(200)]
    assert {each.id.int for each in weights} == {1, 2}


def test_a_job_that_was_hinted_at_goes_first_if_it_may() -> None:
    first, second, third = job(1), job(2), job(3)
    assert prefer([first, second, third], [UUID(int=9), second.id, first.id]) == second
    assert prefer([first], [second.id]) is None
    assert prefer([first], []) is None
