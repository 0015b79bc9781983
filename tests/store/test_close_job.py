"""Tests that a job is closed only without open work, also under concurrent changes."""

from store.scenes import at_once, fail_some, held_up, send_round
from support import FAILED, RETRY, add_job, assert_sound, close_job_as, job_of, settle, take, verdict
from tidemill.core.job import Counts
from tidemill.core.status import JobStatus
from tidemill.jobs import job_control
from tidemill.store import job_lifecycle
from tidemill.store import outcome_flush as store
from tidemill.store.database import Database
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items


async def test_finalize_blocked_by_reprocess_does_not_close_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [5])
    async with db.transaction() as conn:
        assert (await reprocess_items(conn, job_id, ReprocessSelection()))[0] == 1
        closing = await held_up(db, db.run(close_job_as, job_id))
    assert await at_once(closing) is None
    assert (await job_of(db, job_id)).counts == Counts(total=10, pending=1, done=9)
    await assert_sound(db)


async def test_reprocess_blocked_by_finalize_reopens_job(db: Database) -> None:
    job_id = await add_job(db, 10)
    await fail_some(db, job_id, [5])
    async with db.transaction() as conn:
        assert await close_job_as(conn, job_id) is JobStatus.COMPLETED_WITH_ERRORS
        opening = await held_up(db, send_round(db, job_id))
    assert await at_once(opening) == 1
    job = await job_of(db, job_id)
    assert (job.status, job.is_closed, job.counts.pending) == (JobStatus.RUNNING, False, 1)
    await settle(db, await take(db, job_id))
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED
    await assert_sound(db)


async def test_finalize_does_not_close_job_during_last_flush(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    async with db.transaction() as conn:
        await store.flush_outcomes(conn, lease, [verdict(seq, RETRY, delay=60) for seq in range(10)], lease_s=30)
        assert await at_once(db.run(close_job_as, job_id)) is None
    assert await db.run(close_job_as, job_id) is None
    await assert_sound(db)


async def test_concurrent_finalize_closes_job_once(db: Database) -> None:
    job_id = await add_job(db, 10)
    await settle(db, await take(db, job_id))
    async with db.transaction() as conn:
        assert await close_job_as(conn, job_id) is JobStatus.COMPLETED
        second = await held_up(db, db.run(close_job_as, job_id))
    assert await at_once(second) is None
    assert (await job_of(db, job_id)).counts == Counts(total=10, done=10)
    await assert_sound(db)


async def test_finalize_closes_paused_job_without_open_items(db: Database) -> None:
    job_id = await add_job(db, 10)
    lease = await take(db, job_id)
    await job_control.pause_job(db, job_id)
    await settle(db, lease)
    assert await db.run(close_job_as, job_id) is JobStatus.COMPLETED
    await assert_sound(db)


async def test_finalize_ignores_deleted_job(db: Database) -> None:
    job_id = await add_job(db, 1)
    await job_control.delete_job(db, job_id)
    assert await db.run(close_job_as, job_id) is None


async def test_tolerate_policy_percentage_applies_from_100_settled_items(db: Database) -> None:
    job_id = await add_job(db, 1_000, policy={"mode": "tolerate", "max_percent": 10})
    lease = await take(db, job_id)
    await settle(db, lease, [verdict(seq, FAILED) for seq in range(99)])
    assert await db.run(job_lifecycle.enforce_failure_policy, job_id) is None
    await settle(db, lease.with_flushed(99), [verdict(99)])
    assert (
        await db.run(job_lifecycle.enforce_failure_policy, job_id)
        == "99 of 100 settled items failed; the failure policy tolerates 10 %"
    )
    assert (await job_of(db, job_id)).status is JobStatus.CANCELLING
    await assert_sound(db)
