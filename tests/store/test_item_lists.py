"""Tests of item lists by status: pages are complete, without repeats, and limited in cost."""

from uuid import UUID

import pytest

from store.scenes import big_job, retry_some
from support import FAILED, RETRY, add_job, assert_sound, settle, take, verdict
from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control
from tidemill.jobs.queries import iterate_items, list_items
from tidemill.store import batch_leases, item_lists
from tidemill.store.database import Database

DONE, NOT_FOUND, SKIPPED, CANCELLED = (
    ItemStatus.DONE,
    ItemStatus.NOT_FOUND,
    ItemStatus.SKIPPED,
    ItemStatus.CANCELLED,
)


async def seqs(db: Database, job_id: UUID, status: ItemStatus | None, limit: int = 3) -> list[int]:
    found: list[int] = []
    after = None
    while True:
        page = await list_items(db, job_id, [] if status is None else [status], limit=limit, after=after)
        assert len(page.items) <= limit
        assert all(status is None or item["status"] == status for item in page.items)
        found += [item["seq"] for item in page.items]
        after = page.after
        if after is None:
            return found


def of_every_kind(lease: Lease) -> list[Verdict]:
    """Return verdicts that alternate between done, failed, not found, skipped and retry."""
    statuses = (DONE, FAILED, NOT_FOUND, SKIPPED, RETRY)
    return [
        verdict(seq, statuses[seq % 5], delay=60 if statuses[seq % 5] is RETRY else None)
        for seq in range(lease.lo, lease.hi)
    ]


@pytest.mark.parametrize("limit", [1, 4, 10, 100])
async def test_item_list_by_status_contains_all_matching_items(db: Database, limit: int) -> None:
    job_id = await add_job(db, 60, batch_size=40)
    lease = await take(db, job_id)
    await settle(db, lease, of_every_kind(lease))
    for place, status in enumerate((DONE, FAILED, NOT_FOUND, SKIPPED, RETRY)):
        assert await seqs(db, job_id, status, limit) == list(range(place, 40, 5))
    assert await seqs(db, job_id, ItemStatus.PENDING, limit) == list(range(40, 60))
    assert await seqs(db, job_id, None, limit) == list(range(60))
    await assert_sound(db)


@pytest.mark.parametrize("limit", [3, 10, 100])
async def test_cancelled_item_list_contains_every_item_once(db: Database, limit: int) -> None:
    job_id = await add_job(db, 60, batch_size=20)
    await retry_some(db, job_id, range(0, 20, 2), delay=60)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(20, 30)])
    await db.run(batch_leases.release_rest_of_batch, lease.with_flushed(10))
    await job_control.cancel_job(db, job_id)
    found = await seqs(db, job_id, CANCELLED, limit)
    assert len(found) == len(set(found))
    assert sorted(found) == [*range(0, 20, 2), *range(30, 60)]
    await assert_sound(db)


async def test_walk_items_returns_all_cancelled_items(db: Database) -> None:
    job_id = await add_job(db, 1_200)
    await job_control.cancel_job(db, job_id)
    found = [item["seq"] async for item in iterate_items(db, job_id, CANCELLED, limit=10_000)]
    assert sorted(found) == list(range(1_200))


async def test_done_item_list_of_sparse_job_includes_items_without_rows(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10, sparse=True)
    first = await take(db, job_id)
    await settle(db, first, [verdict(seq, FAILED if seq == 4 else DONE) for seq in range(10)])
    await take(db, job_id)
    assert await seqs(db, job_id, DONE) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert await seqs(db, job_id, FAILED) == [4]
    assert await seqs(db, job_id, ItemStatus.PROCESSING) == list(range(10, 20))
    await job_control.cancel_job(db, job_id)
    assert await seqs(db, job_id, DONE) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert sorted(await seqs(db, job_id, CANCELLED, 100)) == list(range(20, 40))
    await assert_sound(db)


async def test_item_page_without_match_is_empty_and_has_next_cursor(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_lists, "PAGE_ITEM_BUDGET", 25)
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, DONE if seq == 80 else FAILED) for seq in range(100)])
    first = await list_items(db, job_id, [DONE], limit=10)
    assert first.items == []
    assert first.after is not None
    assert first.after[2:] == (24,)
    assert await seqs(db, job_id, DONE) == [80]
    assert await seqs(db, job_id, None, 7) == list(range(100))


async def test_item_pages_skip_no_items_with_equal_timestamps(db: Database) -> None:
    job_id = await add_job(db, 300)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(300)])  # all have the same time
    assert await seqs(db, job_id, FAILED, 7) == list(range(300))


async def test_item_page_can_start_at_any_seq_of_long_job(db: Database) -> None:
    job_id = await big_job(db, 40_000, settled=1_000)
    for seq in (0, 12_767, 12_768, 20_000, 32_767, 39_000):
        page = await list_items(db, job_id, limit=5, seq=seq)
        following = await list_items(db, job_id, limit=5, after=page.after)
        assert [item["seq"] for item in page.items + following.items] == [seq + n for n in range(10)]


@pytest.mark.parametrize("status", [ItemStatus.PENDING, CANCELLED])
async def test_item_page_over_nearly_settled_batches_stops_at_scan_budget(
    db: Database, monkeypatch: pytest.MonkeyPatch, status: ItemStatus
) -> None:
    """One page does not scan all of a hundred batches with one open item each."""
    monkeypatch.setattr(item_lists, "PAGE_ITEM_BUDGET", 50)
    job_id = await add_job(db, 200, batch_size=20)
    for _ in range(10):
        lease = await take(db, job_id)
        await settle(db, lease, [verdict(seq) for seq in range(lease.lo, lease.hi - 1)])
        await db.run(batch_leases.release_rest_of_batch, lease.with_flushed(19))
    if status is CANCELLED:
        await job_control.cancel_job(db, job_id)
    first = await list_items(db, job_id, [status], limit=100)
    assert [item["seq"] for item in first.items] == [19, 39, 59]
    assert first.after is not None
    assert await seqs(db, job_id, status, 100) == list(range(19, 200, 20))
