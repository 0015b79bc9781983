"""The pace of a kind, simulated: claims settle, do not swing, and stay within their bounds."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.measure import clamp
from tidemill.engine.adapt.pace import Pace

SLICE_MS, SAFETY = 5_000, 0.7


def claim_size(pace: Pace, *, first: int = 50, low: int = 1, high: int = 1_000) -> int:
    return pace.claim_size(slice_ms=SLICE_MS, safety=SAFETY, first=first, low=low, high=high)


def turn(item_ms: float, rounds: int, pace: Pace | None = None) -> tuple[list[int], Pace]:
    """Claim and process again and again with a handler of that pace; the sizes that were claimed."""
    pace = pace or Pace()
    sizes = []
    for _ in range(rounds):
        size = claim_size(pace)
        sizes.append(size)
        pace = pace.observe(items=size, seconds=size * item_ms / 1000)
    return sizes, pace


def test_a_claim_of_an_unknown_kind_is_the_first_size() -> None:
    assert claim_size(Pace(), first=50) == 50
    assert claim_size(Pace(), first=5_000) == 1_000
    assert claim_size(Pace(), first=1, low=10) == 10


def test_the_claims_of_a_steady_handler_settle_at_once() -> None:
    sizes, _ = turn(item_ms=100, rounds=20)
    assert sizes == [50] + [35] * 19


def test_a_fast_handler_gets_the_most_and_a_slow_one_the_least() -> None:
    assert turn(item_ms=0.01, rounds=10)[0][1:] == [1_000] * 9
    assert turn(item_ms=60_000, rounds=10)[0][1:] == [1] * 9


def test_a_handler_that_becomes_slow_is_followed_without_swinging() -> None:
    _, pace = turn(item_ms=5, rounds=10)
    sizes, _ = turn(item_ms=500, rounds=30, pace=pace)
    assert sizes == sorted(sizes, reverse=True), "downwards only"
    assert sizes[0] == 700
    assert sizes[-1] == 7


def test_a_handler_that_becomes_fast_is_followed_without_swinging() -> None:
    _, pace = turn(item_ms=500, rounds=10)
    sizes, _ = turn(item_ms=5, rounds=60, pace=pace)
    assert sizes == sorted(sizes), "upwards only"
    assert sizes[-1] > 690


@given(st.lists(st.tuples(st.integers(0, 2_000), st.floats(0, 1e5)), max_size=50))
def test_sizes_and_leases_stay_within_their_bounds_whatever_is_observed(seen: list[tuple[int, float]]) -> None:
    pace = Pace()
    for items, seconds in seen:
        pace = pace.observe(items=items, seconds=seconds)
    assert 1 <= claim_size(pace) <= 1_000
    assert 30 <= pace.lease_seconds(items=1_000, floor=30, cap=600) <= 600
    assert 100 <= pace.flush_size(low=100, high=500) <= 500


def test_a_batch_of_nothing_says_nothing() -> None:
    pace = Pace(3.0)
    assert pace.observe(items=0, seconds=9) is pace


def test_a_lease_lasts_twice_as_long_as_the_batch_should() -> None:
    assert Pace(1_000).lease_seconds(items=50, floor=30, cap=600) == 100
    assert Pace(1).lease_seconds(items=50, floor=30, cap=600) == 30
    assert Pace(60_000).lease_seconds(items=50, floor=30, cap=600) == 600
    assert Pace().lease_seconds(items=50, floor=30, cap=600) == 30


def test_fast_outcomes_are_flushed_twice_a_second_and_slow_ones_by_the_hundred() -> None:
    assert Pace().flush_size(low=100, high=500) == 100
    assert Pace(1_000).flush_size(low=100, high=500) == 100
    assert Pace(2).flush_size(low=100, high=500) == 250
    assert Pace(0).flush_size(low=100, high=500) == 500


def test_clamp_keeps_to_the_bounds() -> None:
    assert [clamp(value, 1, 3) for value in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, 3]
