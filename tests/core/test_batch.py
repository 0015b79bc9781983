"""Tests of splitting batches: no item is lost or duplicated, and retries share few lists."""

from itertools import pairwise
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core import batch
from tidemill.core.batch import (
    CARVE_FACTOR,
    RETRY_BUCKETS_MAX,
    SEQ_LIST_MAX,
    BatchCutter,
    BatchPart,
    ClaimMethod,
    Lease,
    choose_claim_method,
    group_retries_by_delay,
    split_evenly,
    split_off_suspects,
)


def lease(
    lo: int, hi: int, seqs: tuple[int, ...] | None = None, open_: int | None = None, *, isolated: bool = False
) -> Lease:
    size = len(seqs) if seqs is not None else hi - lo
    return Lease(1, UUID(int=1), 0, "test", lo, hi, seqs, size if open_ is None else open_, UUID(int=2), 0, isolated)


@st.composite
def leases(draw: st.DrawFn) -> Lease:
    isolated = draw(st.booleans())
    if draw(st.booleans()):
        seqs = tuple(sorted(draw(st.sets(st.integers(0, 5_000), min_size=1, max_size=60))))
        return lease(seqs[0], seqs[-1] + 1, seqs, isolated=isolated)
    lo, size = draw(st.integers(0, 1_000)), draw(st.integers(1, 200))
    return lease(lo, lo + size, open_=draw(st.integers(1, size)), isolated=isolated)


def members(piece: BatchPart | Lease) -> list[int]:
    return list(piece.seqs) if piece.seqs is not None else list(range(piece.lo, piece.hi))


def assert_covers_exactly(pieces: list[BatchPart], whole: Lease) -> None:
    assert sorted(seq for piece in pieces for seq in members(piece)) == members(whole)
    for piece in pieces:
        own = members(piece)
        assert own == sorted(own)
        assert (piece.lo, piece.hi) == (own[0], own[-1] + 1)
        assert (piece.seqs is None) == (whole.seqs is None), "a range stays a range, a list a list"


@given(leases(), st.data())
def test_isolate_suspects_isolates_exactly_the_suspects(whole: Lease, data: st.DataObject) -> None:
    suspects = data.draw(st.sets(st.sampled_from(members(whole)), min_size=1))
    pieces = split_off_suspects(whole, suspects)
    assert_covers_exactly(pieces, whole)
    assert {seq for piece in pieces if piece.isolated for seq in members(piece)} == suspects


def test_isolate_suspects_splits_batch_around_one_suspect() -> None:
    assert split_off_suspects(lease(0, 10), [4]) == [BatchPart(0, 4), BatchPart(4, 5, isolated=True), BatchPart(5, 10)]


def test_isolate_suspects_keeps_one_part_when_all_are_suspects() -> None:
    assert split_off_suspects(lease(3, 6), [5, 3, 4, 4]) == [BatchPart(3, 6, isolated=True)]


@given(leases())
def test_split_evenly_covers_batch_with_equal_parts(whole: Lease) -> None:
    pieces = split_evenly(whole)
    assert_covers_exactly(pieces, whole)
    sizes = [len(members(piece)) for piece in pieces]
    assert len(sizes) <= 2
    assert max(sizes) - min(sizes) <= 1
    assert all(piece.isolated == whole.isolated for piece in pieces)


@pytest.mark.parametrize(
    ("ready", "wanted", "cut"),
    [
        (lease(0, 1_000), 1_000, "whole"),
        (lease(0, 1_000), 5_000, "whole"),
        (lease(0, 1_000), 700, "whole"),  # slightly larger than the target
        (lease(0, 1_000), 600, "carve"),
        (lease(0, 1_000, open_=999), 10, "whole"),  # not untouched: its bounds do not show which items are open
        (lease(0, 2, isolated=True), 1_000, "carve"),
        (lease(0, 1, isolated=True), 1_000, "whole"),
        (lease(0, 9, (1, 5, 8)), 3, "merge"),
        (lease(0, 9, (1, 5, 8)), 100, "merge"),
        (lease(0, 9, (1, 5, 8)), 2, "slice"),
        (lease(0, 9, (1, 5, 8), isolated=True), 100, "slice"),
        (lease(5, 6, (5,), isolated=True), 100, "whole"),
    ],
)
def test_cut_method_depends_on_batch_shape_and_target_size(ready: Lease, wanted: int, cut: ClaimMethod) -> None:
    assert choose_claim_method(ready, wanted) == cut


@given(leases(), st.integers(1, 2_000))
def test_cut_method_full_batch_exceeds_target_by_carve_factor_at_most(ready: Lease, wanted: int) -> None:
    cut = choose_claim_method(ready, wanted)
    if ready.isolated:
        assert cut != "merge", "every suspect is alone"
        wanted = 1
    if ready.is_list:
        assert (cut == "slice") == (ready.open > wanted)
    elif ready.is_untouched_range and cut == "whole":
        assert ready.open <= max(1, wanted * CARVE_FACTOR)
    else:
        assert cut == ("carve" if ready.is_untouched_range else "whole")


waits = st.lists(
    st.tuples(st.integers(0, 10**9), st.one_of(st.floats(0, 10), st.floats(0, 1e7))),
    max_size=300,
    unique_by=lambda wait: wait[0],
)


def assert_good_buckets(asked: list[tuple[int, float]]) -> None:
    buckets = group_retries_by_delay(asked)
    given_ = {seq: delay for delay, seqs in buckets for seq in seqs}
    assert len({delay for delay, _ in buckets}) <= RETRY_BUCKETS_MAX
    assert sorted(seq for _, seqs in buckets for seq in seqs) == sorted(seq for seq, _ in asked), "no item is lost"
    assert all(given_[seq] >= delay for seq, delay in asked), "no item waits less than its delay"
    assert {delay for delay, _ in buckets} <= {delay for _, delay in asked}
    assert all(0 < len(seqs) <= SEQ_LIST_MAX and all(a < b for a, b in pairwise(seqs)) for _, seqs in buckets)


@given(waits)
def test_retry_buckets_are_few_and_never_shorten_delays(asked: list[tuple[int, float]]) -> None:
    assert_good_buckets(asked)


def test_retry_delays_within_25_percent_share_a_bucket() -> None:
    assert group_retries_by_delay([(1, 2.0), (2, 2.4), (3, 10.0)]) == [(2.4, [1, 2]), (10.0, [3])]


def test_retry_buckets_are_limited_when_every_delay_differs() -> None:
    asked = [(seq, 1.3**seq) for seq in range(60)]
    assert_good_buckets(asked)
    assert len(group_retries_by_delay(asked)) == RETRY_BUCKETS_MAX


def test_retry_bucket_lists_are_split_at_1000_items() -> None:
    asked = [(seq, 5.0) for seq in reversed(range(2_500))]
    assert_good_buckets(asked)
    assert [len(seqs) for _, seqs in group_retries_by_delay(asked)] == [1_000, 1_000, 500]


@given(
    chunks=st.lists(st.lists(st.integers(0, 120), max_size=40), max_size=5),
    most=st.integers(1, 12),
    size=st.integers(1, 300),
)
def test_batch_cutter_add_all_equals_adding_items_one_by_one(chunks: list[list[int]], most: int, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "BATCH_INPUT_MAX_BYTES", size)
        together, apart = BatchCutter(7, most), BatchCutter(7, most)
        for sizes in chunks:
            together.add_items(sizes)
            for one in sizes:
                apart.add_item(one)
        assert together.close_and_get_starts_and_ends() == apart.close_and_get_starts_and_ends()
