"""Tests of how much one page scans: enough, and never more than its budget."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemill.store.item_lists import PageBatch, count_batches_to_open, split_scan_window

batches = st.lists(st.integers(1, 2_000).flatmap(lambda w: st.tuples(st.integers(1, w), st.just(w))), max_size=50)


@given(batches, st.integers(1, 1_001), st.integers(1, 20_000), st.integers(-1, 49))
def test_page_scan_stops_when_page_is_full_or_budget_is_spent(
    shapes: list[tuple[int, int]], wanted: int, budget: int, begun: int
) -> None:
    picked = [PageBatch(n, items, width) for n, (items, width) in enumerate(shapes)]
    n = count_batches_to_open(picked, wanted, started_batch_id=begun, budget=budget)
    opened = [batch for batch in picked[:n] if batch.id != begun]
    if n < len(picked):  # the page is full or the budget is used
        assert sum(b.items for b in opened) >= wanted or sum(b.width for b in opened) > budget
    if opened:  # but not before the last batch
        assert sum(b.items for b in opened[:-1]) < wanted
        assert sum(b.width for b in opened[:-1]) <= budget


def test_page_scan_opens_another_batch_beside_started_one() -> None:
    wide = [PageBatch(1, 50_000, 50_000), PageBatch(2, 1, 50_000), PageBatch(3, 1, 1)]
    assert count_batches_to_open(wide, 100, started_batch_id=1, budget=20_000) == 2


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 1_001), st.integers(1, 20_000))
def test_scan_windows_are_contiguous_and_within_budget(lo: int, length: int, first: int, budget: int) -> None:
    found = split_scan_window(lo, lo + length, first, budget)
    assert sum(hi - low for low, hi in found) == min(length, budget)
    assert all(earlier[1] == later[0] for earlier, later in pairwise(found))
    assert not found or found[0] == (lo, min(lo + first, lo + length, lo + budget))
    assert len(found) <= 2
