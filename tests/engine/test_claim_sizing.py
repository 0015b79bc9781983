"""Simulations of the claim size: it converges, does not oscillate, and stays within its limits."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.arithmetic import clamp
from tidemill.engine.sizing import ItemPace

SLICE_MS, SAFETY = 5_000, 0.7


def claim_size(pace: ItemPace, *, first: int = 50, low: int = 1, high: int = 1_000) -> int:
    return pace.claim_size(slice_ms=SLICE_MS, safety=SAFETY, first=first, low=low, high=high)


def turn(item_ms: float, rounds: int, pace: ItemPace | None = None) -> tuple[list[int], ItemPace]:
    """Claim and process repeatedly with a handler of this pace; return the claimed sizes."""
    pace = pace or ItemPace()
    sizes = []
    for _ in range(rounds):
        size = claim_size(pace)
        sizes.append(size)
        pace = pace.with_batch(items=size, seconds=size * item_ms / 1000)
    return sizes, pace


def test_claim_size_of_unmeasured_kind_is_initial_size() -> None:
    assert claim_size(ItemPace(), first=50) == 50
    assert claim_size(ItemPace(), first=5_000) == 1_000
    assert claim_size(ItemPace(), first=1, low=10) == 10


def test_claim_size_of_steady_handler_settles_after_one_batch() -> None:
    sizes, _ = turn(item_ms=100, rounds=20)
    assert sizes == [50] + [35] * 19


def test_claim_size_is_maximum_for_fast_and_minimum_for_slow_handler() -> None:
    assert turn(item_ms=0.01, rounds=10)[0][1:] == [1_000] * 9
    assert turn(item_ms=60_000, rounds=10)[0][1:] == [1] * 9


def test_claim_size_shrinks_monotonically_when_handler_slows_down() -> None:
    _, pace = turn(item_ms=5, rounds=10)
    sizes, _ = turn(item_ms=500, rounds=30, pace=pace)
    assert sizes == sorted(sizes, reverse=True), "downwards only"
    assert sizes[0] == 700
    assert sizes[-1] == 7


def test_claim_size_grows_monotonically_when_handler_speeds_up() -> None:
    _, pace = turn(item_ms=500, rounds=10)
    sizes, _ = turn(item_ms=5, rounds=60, pace=pace)
    assert sizes == sorted(sizes), "upwards only"
    assert sizes[-1] > 690


@given(st.lists(st.tuples(st.integers(0, 2_000), st.floats(0, 1e5)), max_size=50))
def test_claim_size_lease_and_flush_size_stay_within_bounds(seen: list[tuple[int, float]]) -> None:
    pace = ItemPace()
    for items, seconds in seen:
        pace = pace.with_batch(items=items, seconds=seconds)
    assert 1 <= claim_size(pace) <= 1_000
    assert 30 <= pace.lease_seconds(items=1_000, floor=30, cap=600) <= 600
    assert 100 <= pace.flush_size(low=100, high=500) <= 500


def test_item_pace_is_unchanged_by_empty_batch() -> None:
    pace = ItemPace(3.0)
    assert pace.with_batch(items=0, seconds=9) is pace


def test_lease_duration_is_twice_expected_batch_time_within_bounds() -> None:
    assert ItemPace(1_000).lease_seconds(items=50, floor=30, cap=600) == 100
    assert ItemPace(1).lease_seconds(items=50, floor=30, cap=600) == 30
    assert ItemPace(60_000).lease_seconds(items=50, floor=30, cap=600) == 600
    assert ItemPace().lease_seconds(items=50, floor=30, cap=600) == 30


def test_flush_size_follows_item_pace_within_bounds() -> None:
    assert ItemPace().flush_size(low=100, high=500) == 100
    assert ItemPace(1_000).flush_size(low=100, high=500) == 100
    assert ItemPace(2).flush_size(low=100, high=500) == 250
    assert ItemPace(0).flush_size(low=100, high=500) == 500


def test_clamp_limits_value_to_bounds() -> None:
    assert [clamp(value, 1, 3) for value in (0, 1, 2, 3, 4)] == [1, 1, 2, 3, 3]
