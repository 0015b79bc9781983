"""Tests that counts always add up while children and parents are killed repeatedly."""

import asyncio
import os
import random
import signal
import subprocess
import time
from dataclasses import dataclass
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, closed, fates, job_of
from tidemill.core.status import JobStatus
from tidemill.store.database import Database

APP = """
    @mill.handler("test", concurrency=20, max_attempts=3, backoff=0.1)
    async def run(item):
        await asyncio.sleep(0.05)
        if item.input["n"] % 50 == 0 and item.attempt == 1:
            raise Retry("once more")

    @mill.batch_handler("set", sparse=True)
    async def run_set(items):
        await asyncio.sleep(0.005 * len(items))
"""


class Chaos:
    """Kill a child or a parent about every second, and restart parents."""

    def __init__(self, workers: Workers, db: Database, seed: int) -> None:
        self._workers = workers
        self._db = db
        self._rng = random.Random(seed)
        self._parents: list[subprocess.Popen[bytes]] = [self._start(), self._start()]
        self.kills = 0
        self.samples = 0

    def _start(self) -> "subprocess.Popen[bytes]":
        return self._workers.start(processes=2, log_level="error", claim_max=100)

    async def rage(self, jobs: list[UUID], seconds: float) -> None:
        """Check the counts repeatedly until the time is over or all jobs are closed."""
        end, next_kill = time.monotonic() + seconds, time.monotonic() + 1.5
        while time.monotonic() < end:
            if not await self._look(jobs):
                return
            if time.monotonic() > next_kill:
                self._kill()
                next_kill = time.monotonic() + self._rng.uniform(0.5, 1.5)
            await asyncio.sleep(0.01)

    async def _look(self, jobs: list[UUID]) -> bool:
        seen = [await job_of(self._db, job_id) for job_id in jobs]
        self.samples += 1
        assert all(job.counts.is_consistent for job in seen), [job.counts for job in seen]
        return not all(job.is_closed for job in seen)

    def _kill(self) -> None:
        index = self._rng.randrange(len(self._parents))
        parent = self._parents[index]
        children = self._workers.children(parent)
        self.kills += 1
        if children and self._rng.random() < 0.6:
            os.kill(self._rng.choice(children), signal.SIGKILL)
        else:
            parent.kill()
            self._parents[index] = self._start()


@dataclass(frozen=True)
class Scale:
    """The amount of work, the maximum time, and the minimum number of kills and samples."""

    items: int
    batched: int
    seconds: float
    kills: int
    samples: int


A_LITTLE = Scale(items=8_000, batched=1_000, seconds=12, kills=2, samples=20)
A_MINUTE = Scale(items=60_000, batched=8_000, seconds=65, kills=22, samples=650)


async def survive(workers: Workers, db: Database, scale: Scale, seed: int) -> None:
    workers.app(APP)
    jobs = [await add_job(db, scale.items), await add_job(db, scale.batched, "set", sparse=True)]
    chaos = Chaos(workers, db, seed)
    await chaos.rage(jobs, scale.seconds)
    assert chaos.kills >= scale.kills
    assert chaos.samples > scale.samples
    for job_id in jobs:
        job = await closed(db, job_id, within=120.0)
        assert job.status is JobStatus.COMPLETED
        assert job.codes == {}
    again = scale.items // 50
    assert await fates(db, jobs[0]) == {("done", None, 1): scale.items - again, ("done", None, 2): again}
    assert await fates(db, jobs[1]) == {}
    await assert_sound(db)


async def test_random_kills_lose_no_items_and_charge_no_attempts(workers: Workers, db: Database) -> None:
    await survive(workers, db, A_LITTLE, seed=7)


@pytest.mark.full
async def test_random_kills_for_a_minute_lose_no_items_and_charge_no_attempts(workers: Workers, db: Database) -> None:
    await survive(workers, db, A_MINUTE, seed=11)
