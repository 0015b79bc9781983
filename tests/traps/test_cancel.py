"""Cancelling against work that is under way: nothing is run afterwards, nothing stays open."""

from uuid import UUID, uuid4

from support import RETRY, add_job, add_rows, assert_sound, job_of, rows, settle, take, try_take, verdict
from tidemill.domain.block import Block
from tidemill.domain.job import Counts
from tidemill.domain.status import JobStatus
from tidemill.operations import control
from tidemill.store import flush as store
from tidemill.store import ingest, jobs, leases, maintain
from tidemill.store.database import Database
from tidemill.store.flush import Flushed
from tidemill.store.ingest import Chunk
from traps.scenes import at_once, expire, held_up, retry_some, status_of

SOURCE = {"path": "somewhere"}
ROWS = [b"{}"] * 10


async def test_cancel_is_written_into_the_outcomes_of_lists(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [3, 4], delay=60)
    await control.cancel(db, job_id)
    found = await rows(db, "SELECT seq FROM tidemill.outcome WHERE status = 'cancelled' ORDER BY seq")
    assert found == [(3,), (4,)]
    assert await status_of(db, job_id, 3) == "cancelled"
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=8, cancelled=2)
    await assert_sound(db)


async def test_the_items_of_a_cancelled_range_are_cancelled_without_a_write(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(0)])
    await db.run(leases.release, lease.flushed(1))
    await control.cancel(db, job_id)
    assert [await status_of(db, job_id, seq) for seq in (0, 1, 9)] == ["done", "cancelled", "cancelled"]
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome") == [(1,)]
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.CANCELLED, Counts(total=10, done=1, cancelled=9))
    await assert_sound(db)


async def test_a_flush_that_commits_after_the_cancel_leaves_nothing_open(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush(conn, lease, [verdict(seq, RETRY, delay=0) for seq in range(50)], seconds=30)
        await at_once(control.cancel(db, job_id))
        assert (await job_of(db, job_id)).status is JobStatus.CANCELLING
    assert await try_take(db, job_id) is None
    assert await db.run(jobs.finalize, job_id) is None
    assert await db.run(maintain.cancel_condemned) == 1
    assert await db.run(jobs.finalize, job_id) is JobStatus.CANCELLED
    assert (await job_of(db, job_id)).counts == Counts(total=100, cancelled=100)
    assert await rows(db, "SELECT count(*) FROM tidemill.outcome WHERE status = 'cancelled'") == [(50,)]
    await assert_sound(db)


async def test_a_leased_batch_finishes_and_keeps_its_results(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    lease = await take(db, job_id)
    await control.cancel(db, job_id)
    assert await settle(db, lease) is Flushed.APPLIED
    assert await db.run(jobs.finalize, job_id) is JobStatus.CANCELLED
    assert (await job_of(db, job_id)).counts == Counts(total=100, done=50, cancelled=50)
    await assert_sound(db)


async def test_what_is_swept_or_released_after_a_cancel_is_cancelled_too(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=50)
    swept, released = await take(db, job_id), await take(db, job_id)
    await control.cancel(db, job_id)
    await expire(db, swept)
    await db.run(leases.sweep)
    await db.run(leases.release, released)
    assert await try_take(db, job_id) is None
    assert await db.run(maintain.cancel_condemned) == 2
    assert await db.run(jobs.finalize, job_id) is JobStatus.CANCELLED
    await assert_sound(db)


async def test_failing_a_job_cancels_the_rest_as_well(db: Database) -> None:
    job_id = await add_job(db, 10)
    await retry_some(db, job_id, [1], delay=60)
    assert await db.run(jobs.fail, job_id, "because") is True
    assert await db.run(maintain.cancel_condemned) == 1
    assert await db.run(jobs.finalize, job_id) is JobStatus.FAILED
    assert await status_of(db, job_id, 1) == "cancelled"
    await assert_sound(db)


async def being_ingested(db: Database) -> tuple[UUID, UUID]:
    job_id, lease_id = await add_rows(db, [], source=SOURCE), uuid4()
    assert await db.run(ingest.take, ["test"], lease_id=lease_id, lease=30, worker="w1") is not None
    return job_id, lease_id


async def test_a_chunk_under_way_is_cancelled_and_no_other_follows(db: Database) -> None:
    job_id, lease_id = await being_ingested(db)
    async with db.transaction() as conn:
        await ingest.append(conn, job_id, lease_id, Chunk(0, Block(ROWS, {"at": 10})), lease=30, batch_size=5)
        cancelling = await held_up(db, control.cancel(db, job_id))
    await at_once(cancelling)
    late = Chunk(10, Block(ROWS, {"at": 20}))
    assert await db.run(ingest.append, job_id, lease_id, late, lease=30, batch_size=5) is Flushed.STALE
    job = await job_of(db, job_id)
    assert (job.status, job.counts) == (JobStatus.CANCELLED, Counts(total=10, cancelled=10))
    await assert_sound(db)


async def test_a_chunk_that_waited_for_the_cancel_is_refused(db: Database) -> None:
    job_id, lease_id = await being_ingested(db)
    async with db.transaction() as conn:
        await jobs.cancel(conn, job_id)
        chunk = Chunk(0, Block(ROWS, {"at": 10}))
        waiting = await held_up(db, db.run(ingest.append, job_id, lease_id, chunk, lease=30, batch_size=5))
    assert await at_once(waiting) is Flushed.STALE
    assert await rows(db, "SELECT count(*) FROM tidemill.item") == [(0,)]
    await assert_sound(db)


async def test_cancel_and_flush_never_wait_for_each_other(db: Database) -> None:
    job_id = await add_job(db, 20, batch_size=10)
    first = await take(db, job_id)
    await retry_some(db, job_id, range(10, 20), delay=60)
    async with db.transaction() as cancelling, db.transaction() as flushing:
        await jobs.cancel(cancelling, job_id)
        await at_once(store.flush(flushing, first, [verdict(0, RETRY, delay=0)], seconds=30))
        assert await at_once(maintain.cancel_condemned(cancelling, job_id)) == 1
        await at_once(store.flush(flushing, first.flushed(1), [verdict(seq) for seq in range(1, 10)], seconds=30))
    await control.cancel(db, job_id)
    assert (await job_of(db, job_id)).counts == Counts(total=20, done=9, cancelled=11)
    await assert_sound(db)


async def test_a_pause_touches_no_batch(db: Database) -> None:
    job_id = await add_job(db, 100, batch_size=10)
    before = await rows(db, "SELECT id, xmin::text FROM tidemill.batch ORDER BY id")
    await control.pause(db, job_id)
    assert await try_take(db, job_id) is None
    assert await rows(db, "SELECT id, xmin::text FROM tidemill.batch ORDER BY id") == before
    await control.resume(db, job_id)
    await take(db, job_id)
    await assert_sound(db)
