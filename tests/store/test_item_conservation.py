"""Tests that every item is counted exactly once after any operation on its batch."""

from store.scenes import batches, expire, fail_some, retry_some, send_round, unsettled
from support import FAILED, RETRY, add_job, assert_sound, job_of, rows, settle, take, verdict
from tidemill.core.batch import split_evenly, split_off_suspects
from tidemill.core.job import Counts
from tidemill.store import batch_leases
from tidemill.store.batch_leases import find_leased_batch
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection


async def test_carve_moves_items_from_pending_to_processing_count(db: Database) -> None:
    job_id = await add_job(db, 100)
    piece = await take(db, job_id, 30)
    assert await batches(db, job_id) == [("ready", 30, 100, None, 70), ("leased", 0, 30, None, 30)]
    assert (await job_of(db, job_id)).counts == Counts(total=100, pending=70, processing=30)
    await settle(db, piece)
    await assert_sound(db)


async def test_partly_flushed_range_is_claimed_without_carving(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(0, 100, 2)])
    await db.run(batch_leases.release_rest_of_batch, lease.with_flushed(50))
    whole = await take(db, job_id, 10)
    assert (whole.lo, whole.hi, whole.open) == (0, 100, 50)
    assert await unsettled(db, whole) == list(range(1, 100, 2))
    await settle(db, whole, [verdict(seq) for seq in range(1, 100, 2)])
    await assert_sound(db)


async def test_batch_slightly_larger_than_requested_is_claimed_without_carving(db: Database) -> None:
    job_id = await add_job(db, 15)
    assert (await take(db, job_id, 10)).open == 15
    await assert_sound(db)


async def test_release_after_crash_requeues_only_unsettled_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(3)])
    assert await db.run(batch_leases.release_rest_of_batch, lease, after_crash=True) == (0, 7)
    counts = (await job_of(db, job_id)).counts
    assert (counts.pending, counts.failed) == (7, 3)
    await assert_sound(db)


async def test_release_with_outdated_flush_count_is_rejected(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0)])
    assert await db.run(batch_leases.release_rest_of_batch, lease) is None
    await assert_sound(db)


async def test_split_range_pieces_contain_only_open_items(db: Database) -> None:
    job_id = await add_job(db, 100)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(40)])
    held = lease.with_flushed(40)
    assert await db.run(batch_leases.split_batch, held, split_off_suspects(held, [50, 70])) is True
    pieces = "SELECT lo, hi, open, isolated FROM tidemill.batch WHERE job_id = %s AND state = 'ready' ORDER BY lo"
    assert await rows(db, pieces, job_id) == [
        (0, 50, 10, False),
        (50, 51, 1, True),
        (51, 70, 19, False),
        (70, 71, 1, True),
        (71, 100, 29, False),
    ]
    assert (await job_of(db, job_id)).counts == Counts(total=100, pending=60, done=40)
    await assert_sound(db)


async def test_split_creates_no_piece_without_open_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq) for seq in range(5)])
    await db.run(batch_leases.split_batch, lease.with_flushed(5), split_evenly(lease))
    assert await batches(db, job_id) == [("done", 0, 10, None, 0), ("ready", 5, 10, None, 5)]
    await assert_sound(db)


async def test_split_list_halves_contain_all_open_items(db: Database) -> None:
    job_id = await add_job(db, 9)
    await retry_some(db, job_id, range(9))
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(4, attempts=2)])
    held = await db.run(find_leased_batch, "w1", lease.lease_id)
    assert held is not None
    await db.run(batch_leases.split_batch, held, split_evenly(held))
    ready = await rows(db, "SELECT seqs FROM tidemill.batch WHERE state = 'ready' ORDER BY id")
    assert ready == [([0, 1, 2, 3],), ([5, 6, 7, 8],)]
    assert (await job_of(db, job_id)).counts == Counts(total=9, retry_wait=8, done=1)
    await assert_sound(db)


async def test_reprocess_moves_items_from_failed_to_pending_count(db: Database) -> None:
    job_id = await add_job(db, 100)
    await fail_some(db, job_id, range(10))
    assert (await job_of(db, job_id)).codes == {"test": 10}
    assert await send_round(db, job_id, ReprocessSelection(seqs=[1, 2, 3])) == 3
    job = await job_of(db, job_id)
    assert job.counts == Counts(total=100, pending=3, done=90, failed=7)
    assert job.codes == {"test": 7}
    await assert_sound(db)


async def test_reprocess_requeues_failed_item_while_its_batch_is_leased(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0, FAILED), verdict(1)])
    assert await send_round(db, job_id) == 1
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=1, processing=8, done=1)
    await assert_sound(db)
    await settle(db, lease.with_flushed(2), [verdict(seq) for seq in range(2, 10)])
    await settle(db, await take(db, job_id))
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=10)
    await assert_sound(db)


async def test_job_counts_add_up_through_carve_release_sweep_and_split(db: Database) -> None:
    job_id = await add_job(db, 1_000, batch_size=250)
    carved = await take(db, job_id, 40)
    released = await take(db, job_id, 100)
    swept = await take(db, job_id, 100, worker="w2")
    await settle(db, carved, [verdict(seq, RETRY, delay=0) for seq in range(carved.lo, carved.lo + 20)])
    await assert_sound(db)
    await db.run(batch_leases.release_rest_of_batch, released)
    await expire(db, swept)
    await db.run(batch_leases.reclaim_expired_leases)
    await assert_sound(db)
    held = carved.with_flushed(20)
    await db.run(batch_leases.split_batch, held, split_off_suspects(held, [carved.lo + 30]))
    await assert_sound(db)
    while (await job_of(db, job_id)).counts.open:
        lease = await take(db, job_id, 150)
        await settle(db, lease, [verdict(seq) for seq in await unsettled(db, lease)])
        await assert_sound(db)
    assert (await job_of(db, job_id)).counts == Counts(total=1_000, done=1_000)
