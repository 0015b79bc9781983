"""Tests of a broker that dies twice and loses and repeats hints: counts add up, no effect happens twice."""

import asyncio
import random
import shutil
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from dispatch.listeners import Ear, envelope
from dispatch.test_workers_with_broker import heard_of
from support import Workers, add_job, assert_sound, closed, rows
from support.brokers import BrokerServer, folder_for, make_broker, need
from tidemill.core.errors import BrokerUnavailable
from tidemill.core.status import JobStatus
from tidemill.dispatch.dispatchers import BrokerDispatcher
from tidemill.store.database import Database

APP = """
    @mill.batch_handler("test")
    async def run(items, conn):
        await asyncio.sleep(0.05)
        rows = [(item.job_id, item.seq) for item in items]
        async with conn.cursor() as cursor:
            await cursor.executemany("INSERT INTO effects VALUES (%s, %s)", rows)
"""
TWICE = 2


class Meddler(Ear):
    """A consumer that takes hints like a worker, drops some and repeats others three times."""

    def __init__(self, dispatcher: BrokerDispatcher) -> None:
        super().__init__()
        self._dispatcher = dispatcher
        self._dice = random.Random(7)

    async def wake_for_job(self, job_id: UUID) -> None:
        self.heard.append(job_id)
        if self._dice.random() < 0.5:
            return  # lost
        for _ in range(3):
            try:
                await self._dispatcher.dispatch([envelope(job_id=job_id)])
            except BrokerUnavailable:
                return


@pytest.fixture
def mortal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    need(request.param)
    folder = folder_for(request.param, tmp_path_factory.mktemp("mortal"))
    with make_broker(request.param, folder) as broker:
        yield broker
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    ("mortal", "jobs", "items"),
    [
        ("redis", 12, 500),
        pytest.param("redis", 50, 2_000, marks=pytest.mark.full),
        pytest.param("rabbitmq", 50, 2_000, marks=pytest.mark.full),
    ],
    indirect=["mortal"],
)
async def test_broker_outages_lose_no_items_and_duplicate_no_effects(
    mortal: BrokerServer,
    jobs: int,
    items: int,
    workers: Workers,
    db: Database,
    dispatchers: Callable[..., Any],
    ears: Callable[..., Ear],
) -> None:
    await rows(db, "CREATE TABLE effects (job_id uuid, seq bigint)")
    workers.app(APP)
    for _ in range(2):
        workers.start(broker=mortal.url, poll_ms=500, claim_max=100)
    await heard_of(db, n=2)
    meddler = dispatchers(mortal.url, worker="meddler")
    ears(meddler, Meddler(meddler))

    made: list[UUID] = []
    for number in range(jobs):
        made.append(await add_job(db, items, batch_size=100))
        if number in (jobs // 3, 2 * jobs // 3):
            await _restarted(mortal, db)
    for job_id in made:
        done = await closed(db, job_id)
        assert (done.status, done.counts.done) == (JobStatus.COMPLETED, items)
    assert await rows(db, "SELECT count(*), count(DISTINCT (job_id, seq)) FROM effects") == [(jobs * items,) * 2]
    await assert_sound(db)


async def _restarted(broker: BrokerServer, db: Database) -> None:
    """Kill the broker; workers detect it and continue; then restart it."""
    broker.kill()
    await heard_of(db, "IS NOT NULL", n=1)
    await asyncio.to_thread(broker.start)
    await heard_of(db, n=TWICE)
