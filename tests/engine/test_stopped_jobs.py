"""Paused, cancelled and failed jobs: items that have started finish, claimed items that have not are released."""

import asyncio

import pytest

from support import add_job, assert_sound, eventually, job_of
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.jobs import job_control
from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing.drain import DrainEngine


@pytest.mark.parametrize(("verb", "status"), [("pause", "paused"), ("cancel", "cancelled"), ("fail", "failed")])
async def test_stopped_job_finishes_started_items_and_releases_the_others(
    mill: Mill, db: Database, verb: str, status: str
) -> None:
    started, release = [], asyncio.Event()

    @mill.handler("test", concurrency=2)
    async def run(item: Item) -> None:
        started.append(item.seq)
        await release.wait()

    job_id = await add_job(db, 50)
    engine = DrainEngine(mill, db)
    engine.context.sizing.record_pace("test", 1_000, 1.0)  # so that one claim takes all items
    draining = asyncio.create_task(engine.run_until_idle(retries=False))
    try:
        await eventually(lambda: asyncio.sleep(0, len(started) == 2), 10)
        assert (await job_of(db, job_id)).counts.processing == 50
        if verb == "pause":
            await job_control.pause_job(db, job_id)
        elif verb == "cancel":
            await job_control.cancel_job(db, job_id)
        else:
            await db.run(job_lifecycle.fail_job, job_id, "test")
        await eventually(lambda: asyncio.sleep(0, not engine.context.job_stops.is_watching), 5)
    finally:
        release.set()
        await asyncio.wait_for(draining, 10)
    job = await job_of(db, job_id)
    assert (job.status, len(started), job.counts.done) == (status, 2, 2)
    assert (job.counts.pending if verb == "pause" else job.counts.cancelled) == 48
    await assert_sound(db, job_id)


async def test_batch_that_takes_far_too_long_releases_items_that_have_not_started(
    settings: Settings, db: Database
) -> None:
    mill = Mill(settings.model_copy(update={"worker_target_slice_ms": 100}))

    @mill.handler("test", concurrency=1)
    async def run(item: Item) -> None:
        await asyncio.sleep(0.05)

    job_id = await add_job(db, 40)
    engine, events = DrainEngine(mill, db), list[Event]()
    engine.context.sizing.record_pace("test", 1_000, 0.1)
    unsubscribe = subscribe(events.append)
    try:
        await asyncio.wait_for(engine.run_until_idle(retries=False), 20)
    finally:
        unsubscribe()
    claimed = [event.fields["size"] for event in events if event.name == "batch.claimed"]
    released = [event.fields["items"] for event in events if event.name == "batch.released"]
    assert claimed[0] == 40
    assert released[0] > 20
    assert (await job_of(db, job_id)).counts.done == 40
    await assert_sound(db, job_id)
