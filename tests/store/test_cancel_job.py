"""Tests of cancelling a job with work in progress: no item runs afterwards, and none stays open."""

from uuid import UUID, uuid4

from store.scenes import at_once, expire, held_up, retry_some, status_of
from support import RETRY, add_job, add_rows, assert_sound, close_job_as, job_of, rows, settle, take, try_take, verdict
from tidemill.core.input_source import InputBlock, SourceReference
from tidemill.core.job import Counts
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control
from tidemill.store import batch_leases, ingestion, job_lifecycle
from tidemill.store import outcome_flush as store
from tidemill.store.database import Database
from tidemill.store.ingestion import IngestChunk
from tidemill.store.outcome_flush import FlushResult

SOURCE = SourceReference(blob="somewhere")
ROWS = [b"{}"] * 10


async def test_cancel_writes_cancelled_outcomes_for_retry_list_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [3, 4], delay=60)
    await job_control.cancel_job(db, job_id)
    found = await rows(db, "SELECT seq FROM tidemill.outcome WHERE status = 'cancelled' ORDER BY seq")
    assert found == [(3,), (4,)]
    assert await status_of(db, job_id, 3) == "cancelled"
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=8, cancelled=2)
    await assert_sound(db)


async def test_cancel_writes_no_outcomes_for_range_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0)])
    await db.run(batch_leases.release_rest_of_batch, lease.with_flushed(1))
    await job_control.cancel_job(db, job_id)
    assert [await status_of(db, job_id, seq) for seq in (0, 1, 9)] == ["done", "cancelled", "cancelled"]
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(1,)]
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.CANCELLED, Counts(total=10, done=1, cancelled=9))
    await assert_sound(db)


async def test_flush_committed_after_cancel_leaves_no_open_items(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, lease, [verdict(seq, RETRY, delay=0) for seq in range(50)], lease_s=30)
        await at_once(job_control.cancel_job(db, job_id))
        assert (await job_of(db, job_id)).status is JobStatus.CANCELLING
    assert await try_take(db, job_id) is None
    assert await db.run(close_job_as, job_id) is None
    assert await db.run(job_lifecycle.cancel_some_ready_batches) == 1
    assert await db.run(close_job_as, job_id) is JobStatus.CANCELLED
    assert (await job_of(db, job_id)).counts == Counts(total=100, cancelled=100)
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome WHERE status = 'cancelled'") == [(50,)]
    await assert_sound(db)


async def test_leased_batch_keeps_results_when_job_is_cancelled(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    lease = await take(db, job_id)
    await job_control.cancel_job(db, job_id)
    assert await settle(db, lease) is FlushResult.APPLIED
    assert await db.run(close_job_as, job_id) is JobStatus.CANCELLED
    assert (await job_of(db, job_id)).counts == Counts(total=100, done=50, cancelled=50)
    await assert_sound(db)


async def test_batch_reclaimed_or_released_after_cancel_is_cancelled(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    swept, released = await take(db, job_id), await take(db, job_id)
    await job_control.cancel_job(db, job_id)
    await expire(db, swept)
    await db.run(batch_leases.reclaim_expired_leases)
    await db.run(batch_leases.release_rest_of_batch, released)
    assert await try_take(db, job_id) is None
    assert await db.run(job_lifecycle.cancel_some_ready_batches) == 2
    assert await db.run(close_job_as, job_id) is JobStatus.CANCELLED
    await assert_sound(db)


async def test_failing_job_cancels_its_waiting_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1], delay=60)
    assert await db.run(job_lifecycle.fail_job, job_id, "because") is True
    assert await db.run(job_lifecycle.cancel_some_ready_batches) == 1
    assert await db.run(close_job_as, job_id) is JobStatus.FAILED
    assert await status_of(db, job_id, 1) == "cancelled"
    await assert_sound(db)


async def being_ingested(db: Database) -> tuple[UUID, UUID]:
    job_id, lease_id = await add_rows(db, [], source=SOURCE), uuid4()
    assert await db.run(ingestion.take_ingest_lease, ["test"], lease_id=lease_id, lease=30, worker="w1") is not None
    return job_id, lease_id


async def test_cancel_during_ingest_cancels_chunk_and_rejects_next_one(db: Database) -> None:
    job_id, lease_id = await being_ingested(db)
    async with db.transaction() as conn:
        await ingestion.append_chunk(
            conn, job_id, lease_id, IngestChunk(0, InputBlock(ROWS, {"at": 10})), lease=30, batch_size=5
        )
        cancelling = await held_up(db, job_control.cancel_job(db, job_id))
    await at_once(cancelling)
    late = IngestChunk(10, InputBlock(ROWS, {"at": 20}))
    assert await db.run(ingestion.append_chunk, job_id, lease_id, late, lease=30, batch_size=5) is FlushResult.STALE
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.CANCELLED, Counts(total=10, cancelled=10))
    await assert_sound(db)


async def test_ingest_chunk_blocked_by_cancel_is_rejected(db: Database) -> None:
    job_id, lease_id = await being_ingested(db)
    async with db.transaction() as conn:
        await job_lifecycle.cancel_job(conn, job_id)
        chunk = IngestChunk(0, InputBlock(ROWS, {"at": 10}))
        waiting = await held_up(db, db.run(ingestion.append_chunk, job_id, lease_id, chunk, lease=30, batch_size=5))
    assert await at_once(waiting) is FlushResult.STALE
    assert await rows(db, "SELECT count(*) FROM tidemill.item") == [(0,)]
    await assert_sound(db)


async def test_cancel_and_flush_do_not_block_each_other(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    first = await take(db, job_id)
    await retry_some(db, job_id, range(10, 20), delay=60)
    async with db.transaction() as cancelling, db.transaction() as flushing:
        await job_lifecycle.cancel_job(cancelling, job_id)
        await at_once(store.flush_outcomes(flushing, first, [verdict(0, RETRY, delay=0)], lease_s=30))
        assert await at_once(job_lifecycle.cancel_some_ready_batches(cancelling, job_id)) == 1
        await at_once(
            store.flush_outcomes(flushing, first.with_flushed(1), [verdict(seq) for seq in range(1, 10)], lease_s=30)
        )
    await job_control.cancel_job(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=20, done=9, cancelled=11)
    await assert_sound(db)


async def test_pause_stops_claims_without_updating_batches(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    before = await rows(db, "SELECT id, xmin::text FROM tidemill.batch ORDER BY id")
    await job_control.pause_job(db, job_id)
    assert await try_take(db, job_id) is None
    assert await rows(db, "SELECT id, xmin::text FROM tidemill.batch ORDER BY id") == before
    await job_control.resume_job(db, job_id)
    await take(db, job_id)
    await assert_sound(db)
