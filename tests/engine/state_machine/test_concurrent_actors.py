"""Tests of concurrent actors on the same jobs: every item settles once, and counts add up."""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID

import pytest

from engine.state_machine.concurrent_actor import Actor, Stage
from support import (
    DONE,
    FAILED,
    add_job,
    assert_sound,
    close_job_as,
    eventually,
    job_of,
    rows,
    settle,
    take,
    try_take,
    verdict,
)
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.store import batch_leases, item_records, job_lifecycle
from tidemill.store import retention as deletes
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing.drain import make_batches_due

ACTORS = 6
STATUSES = "SELECT seq, status FROM tidemill.item_status WHERE job_id = %s"
ABANDONED = "UPDATE tidemill.batch SET lease_until = tidemill.now() - interval '1 s' WHERE state = 'leased'"


async def set_stage(db: Database) -> Stage:
    calm = await add_job(db, 5_000, batch_size=400)
    wild = await add_job(db, 1_000, batch_size=50)
    sparse = await add_job(db, 1_000, sparse=True, batch_size=100)
    return Stage(calm, [wild, sparse], sparse)


async def finish(db: Database, stage: Stage) -> None:
    """Finish the remaining work after all other actors have stopped."""
    for job_id in stage.jobs:
        job = await job_of(db, job_id)
        if job.status == "paused":
            await db.run(job_lifecycle.resume_job, job_id)
    await rows(db, ABANDONED)
    await db.run(batch_leases.reclaim_expired_leases)
    await db.run(make_batches_due)
    for job_id in stage.jobs:
        await work_off(db, stage, job_id)
        while await db.run(job_lifecycle.cancel_some_ready_batches, job_id):
            pass
        await db.run(close_job_as, job_id)


async def work_off(db: Database, stage: Stage, job_id: UUID) -> None:
    while (lease := await try_take(db, job_id)) is not None:
        said = [
            verdict(item.seq, DONE, attempts=item.attempt)
            for item in await db.run_async_commit(item_records.read_unsettled_items, lease)
        ]
        await settle(db, lease, said)
        stage.hear(lease, said)


async def assert_settled(db: Database, stage: Stage) -> None:
    """Check that every job is closed and every item of the calm job has its one recorded outcome."""
    for job_id in stage.jobs:
        job = await job_of(db, job_id)
        assert job.is_closed
        assert job.counts.is_consistent
        assert job.counts.settled == job.counts.total
    found: dict[int, str] = dict(await rows(db, STATUSES, stage.calm))
    assert {seq: [ItemStatus(status)] for seq, status in found.items()} == stage.said
    await assert_sound(db)


@asynccontextmanager
async def a_crowd(url: str, stage: Stage, seconds: float) -> AsyncIterator[None]:
    """Run actors for a limited time; their transactions are retried, but not forever."""
    seed = random.SystemRandom().randrange(2**32)
    retries: list[Event] = []
    unsubscribe = subscribe(lambda event: retries.append(event) if event.name == "database.retry" else None)
    async with AsyncExitStack() as stack:
        stack.callback(unsubscribe)
        own = [await stack.enter_async_context(Database(url, size=1)) for _ in range(ACTORS)]
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as crowd:
            for number, db in enumerate(own):
                crowd.create_task(Actor(db, f"w{number}", stage, f"{seed} {number}").play(until))
            yield
    print(f"seed {seed}, retries {retries}, {stage.did}")  # noqa: T201  shown when the test fails
    assert all(event.fields["attempt"] < 10 for event in retries)


@pytest.mark.parametrize("seconds", [3, pytest.param(60, marks=pytest.mark.full)])
async def test_concurrent_random_actors_settle_every_item_once(
    tidemill_database: str, db: Database, seconds: int
) -> None:
    stage = await set_stage(db)
    async with a_crowd(tidemill_database, stage, seconds):
        pass
    await finish(db, stage)
    await assert_settled(db, stage)


async def test_job_deleted_during_concurrent_work_leaves_no_rows(tidemill_database: str, db: Database) -> None:
    stage = await set_stage(db)
    async with a_crowd(tidemill_database, stage, 60):
        for job_id in stage.wild:
            await eventually(stage.more_work)
            await db.run(deletes.delete_job, job_id)
        await eventually(stage.more_work)
        stage.is_over = True
    for job_id in stage.wild:
        while await db.run(deletes.delete_row_chunk_of_deleted_job, job_id):
            pass
    for table in ("job", "batch", "ingest", "job_tally", "item", "outcome"):
        column = "id" if table == "job" else "job_id"
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table} WHERE {column} <> %s", stage.calm) == [(0,)]
    stage.wild.clear()
    await finish(db, stage)
    await assert_settled(db, stage)


async def test_violated_failure_policy_fails_job_closed_by_another_worker(db: Database) -> None:
    job_id = await add_job(db, 2, batch_size=1, policy={"mode": "fail_fast"})
    mine, theirs = await take(db, job_id, 1, "w1"), await take(db, job_id, 1, "w2")
    await settle(db, mine, [verdict(mine.lo, FAILED)])
    await settle(db, theirs)  # and another actor closes the job before its policy is checked
    assert await db.run(close_job_as, job_id) is JobStatus.FAILED
    assert await db.run(job_lifecycle.enforce_failure_policy, job_id) is None
    assert (await job_of(db, job_id)).failure_reason is not None
