"""Closing a job: only when nothing of it is open, whoever else is at it."""

from support import FAILED, RETRY, add_job, assert_sound, job_of, settle, take, verdict
from tidemill.domain.job import Counts
from tidemill.domain.status import JobStatus
from tidemill.operations import control
from tidemill.store import flush as store
from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.store.reprocess import Choice, reprocess
from traps.scenes import at_once, fail_some, held_up, send_round


async def test_a_job_that_is_reopened_meanwhile_is_not_closed(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [5])
    async with db.transaction() as conn:
        assert (await reprocess(conn, job_id, Choice()))[0] == 1
        closing = await held_up(db, db.run(jobs.finalize, job_id))
    assert await at_once(closing) is None
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=1, done=9)
    await assert_sound(db)


async def test_a_reprocess_that_waited_for_the_closing_opens_the_job_again(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [5])
    async with db.transaction() as conn:
        assert await jobs.finalize(conn, job_id) is JobStatus.COMPLETED_WITH_ERRORS
        opening = await held_up(db, send_round(db, job_id))
    assert await at_once(opening) == 1
    job = await job_of(db, job_id)
    assert (job.status, job.is_closed, job.counts.pending) == (JobStatus.RUNNING, False, 1)
    await settle(db, await take(db, job_id))
    assert await db.run(jobs.finalize, job_id) is JobStatus.COMPLETED
    await assert_sound(db)


async def test_a_job_is_not_closed_while_its_last_flush_is_under_way(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush(conn, lease, [verdict(seq, RETRY, delay=60) for seq in range(10)], seconds=30)
        assert await at_once(db.run(jobs.finalize, job_id)) is None
    assert await db.run(jobs.finalize, job_id) is None
    await assert_sound(db)


async def test_two_that_close_at_once_close_it_once(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    async with db.transaction() as conn:
        assert await jobs.finalize(conn, job_id) is JobStatus.COMPLETED
        second = await held_up(db, db.run(jobs.finalize, job_id))
    assert await at_once(second) is None
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=10)
    await assert_sound(db)


async def test_a_paused_job_with_nothing_open_is_closed(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await control.pause(db, job_id)
    await settle(db, lease)
    assert await db.run(jobs.finalize, job_id) is JobStatus.COMPLETED
    await assert_sound(db)


async def test_a_job_that_is_gone_is_not_closed(db: Database) -> None:
    job_id = await add_job(db, 1)
    await control.delete(db, job_id)
    assert await db.run(jobs.finalize, job_id) is None


async def test_a_percentage_is_of_settled_items_and_needs_a_sample(db: Database) -> None:
    job_id = await add_job(db, 1_000, policy={"mode": "tolerate", "max_percent": 10})
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(99)])
    assert await db.run(jobs.police, job_id) is None
    await settle(db, lease.flushed(99), [verdict(99)])
    assert await db.run(jobs.police, job_id) == "tolerate: 99 of 100 settled items failed, 10 % are tolerated"
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLING
    await assert_sound(db)
