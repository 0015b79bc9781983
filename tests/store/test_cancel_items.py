"""Tests that cancelling and requeuing single items counts each item once, in ranges and lists."""

from uuid import UUID

import pytest

from store.scenes import retry_some, send_round, status_of, unsettled
from support import FAILED, add_job, assert_sound, close_job_as, job_of, settle, take, try_take, verdict
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Counts
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.jobs import job_control
from tidemill.jobs import job_control as operation
from tidemill.store.database import Database
from tidemill.store.item_selection import CountSelection, count_items
from tidemill.store.job_lifecycle import CancelSelection
from tidemill.store.reprocess_items import ReprocessSelection

CANCELLED = [ItemStatus.CANCELLED]


async def cancelled(db: Database, job_id: UUID, waiting: CancelSelection) -> int:
    made = await operation.cancel_waiting_items(db, job_id, waiting)
    assert made.state == "done", made.error
    await assert_sound(db)
    return made.items


async def run_to_the_end(db: Database, job_id: UUID) -> None:
    while (lease := await try_take(db, job_id)) is not None:
        await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await db.run(close_job_as, job_id)
    await assert_sound(db)


@pytest.mark.parametrize("sparse", [False, True])
async def test_cancelled_range_items_are_skipped_by_claim(db: Database, sparse: bool) -> None:
    job_id = await add_job(db, 30, batch_size=10, sparse=sparse)
    assert await cancelled(db, job_id, CancelSelection(seqs=[3, 4, 15, 99])) == 3
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=27, cancelled=3)
    assert await status_of(db, job_id, 3) == "cancelled"
    lease = await take(db, job_id)
    assert await unsettled(db, lease) == [0, 1, 2, 5, 6, 7, 8, 9]
    await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=27, cancelled=3)


async def test_item_cancel_with_exclusions_leaves_leased_items_running(db: Database) -> None:
    job_id = await add_job(db, 40, batch_size=10)
    lease = await take(db, job_id)
    assert await cancelled(db, job_id, CancelSelection(excluded_seqs=frozenset([12, 35]))) == 28
    assert (await job_of(db, job_id)).counts == Counts(total=40, pending=2, processing=10, cancelled=28)
    await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
    await run_to_the_end(db, job_id)
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.COMPLETED, Counts(total=40, done=12, cancelled=28))


async def test_cancelled_retry_items_are_removed_from_retry_list(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1, 2, 3], delay=60)
    assert await cancelled(db, job_id, CancelSelection(statuses=[ItemStatus.PENDING])) == 0
    assert await cancelled(db, job_id, CancelSelection(seqs=[2])) == 1
    assert (await job_of(db, job_id)).counts == Counts(total=10, retry_wait=2, done=7, cancelled=1)
    assert await cancelled(db, job_id, CancelSelection(statuses=[ItemStatus.RETRY_WAIT])) == 2
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.COMPLETED, Counts(total=10, done=7, cancelled=3))


async def test_reprocess_cancelled_job_includes_individually_cancelled_items(db: Database) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    assert await cancelled(db, job_id, CancelSelection(seqs=[3, 4, 15])) == 3
    await job_control.cancel_job(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, cancelled=30)
    await assert_sound(db)
    assert await send_round(db, job_id, ReprocessSelection(CANCELLED)) == 30
    await assert_sound(db)
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=30)


@pytest.mark.parametrize("folded", [True, False])
async def test_reprocess_requeues_selected_items_of_cancelled_ranges(db: Database, folded: bool) -> None:
    job_id = await add_job(db, 30, batch_size=10)
    await settle(db, await take(db, job_id), [verdict(seq, FAILED) for seq in range(10)])
    await job_control.cancel_job(db, job_id)
    if folded:
        await db.run(close_job_as, job_id)
    assert (
        await db.run(count_items, job_id, CountSelection(CANCELLED, seqs=[3, 12, 27], reprocessable_only=True))
    ) == (2, True)
    assert await send_round(db, job_id, ReprocessSelection(CANCELLED, seqs=[3, 12, 27])) == 2
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=2, failed=10, cancelled=18)
    await assert_sound(db)
    assert await send_round(db, job_id, ReprocessSelection(CANCELLED, excluded_seqs=[15])) == 17
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=19, failed=10, cancelled=1)
    await assert_sound(db)
    await run_to_the_end(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=30, done=19, failed=10, cancelled=1)
    assert await send_round(db, job_id, ReprocessSelection(CANCELLED)) == 1
    await assert_sound(db)


async def test_item_key_selection_searches_every_window(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("reprocess_items", "job_lifecycle", "item_selection"):
        monkeypatch.setattr(f"tidemill.store.{module}.SELECTION_WINDOW_ITEMS", 7)
    job_id = await add_job(db, 30, batch_size=10)  # inputs are {"n": seq}
    twenties = CountSelection(key="2*")
    assert await db.run(count_items, job_id, twenties) == (11, True)
    assert await cancelled(db, job_id, CancelSelection(key="2*", excluded_seqs=frozenset([25]))) == 10
    assert await db.run(count_items, job_id, CountSelection(CANCELLED, key="21", reprocessable_only=True)) == (1, True)
    assert await send_round(db, job_id, ReprocessSelection(CANCELLED, key="21")) == 1
    await assert_sound(db)
    assert (await job_of(db, job_id)).counts == Counts(total=30, pending=21, cancelled=9)


async def test_item_cancel_rejects_settled_statuses_and_closed_jobs(db: Database) -> None:
    job_id = await add_job(db, 3)
    with pytest.raises(InvalidInput, match="are not waiting"):
        await operation.cancel_waiting_items(db, job_id, CancelSelection(statuses=[ItemStatus.FAILED]))
    await run_to_the_end(db, job_id)
    with pytest.raises(Conflict, match="has no waiting items"):
        await operation.cancel_waiting_items(db, job_id, CancelSelection())
