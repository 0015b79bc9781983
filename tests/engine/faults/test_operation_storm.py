"""Tests that random operations and kills never lose or repeat an effect that a handler writes in the flush transaction.

A handler records each item that it reports as done in a ledger table, on the connection of its transaction. At the end
the ledger must agree with the statuses of the items. `STORM_SEED`, `STORM_STORMS` and `STORM_ITEMS` set the first seed,
the number and the size of the storms with the mark `full`.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from support import Workers, add_job, assert_sound, eventually, job_of, rows
from tidemill.core.errors import TidemillError
from tidemill.core.job import Job
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import ItemStatus
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import ReprocessSelection, record_item_fix, reprocess_items, run_dead_letter_operation
from tidemill.store.database import Database

SEED = int(os.environ.get("STORM_SEED", "1"))
STORMS = int(os.environ.get("STORM_STORMS", "5"))
ITEMS = int(os.environ.get("STORM_ITEMS", "4000"))
LEDGER = "CREATE TABLE public.ledger (job_id uuid NOT NULL, seq bigint NOT NULL, worker int NOT NULL)"
APP = """
    async def run(items, conn):
        outcomes = []
        for item in items:
            n, is_fixed = item.input["n"], "fixed" in item.input
            if n % 10 == 3 and not is_fixed:
                outcomes.append(Fail("It must be fixed", retryable=True))
            elif n % 10 == 5 and item.attempt == 1:
                outcomes.append(Retry("Once more", after=0.05))
            else:
                outcomes.append(Done())
        done = [item.seq for item, outcome in zip(items, outcomes) if type(outcome) is Done]
        await conn.execute(
            "INSERT INTO public.ledger SELECT %s, seq, %s FROM unnest(%s::bigint[]) seq",
            (items[0].job_id, os.getpid(), done),
        )
        await asyncio.sleep(0.02)
        return outcomes

    mill.batch_handler("dense")(run)
    mill.batch_handler("sparse", sparse=True)(run)
"""
RERUN = (ItemStatus.FAILED, ItemStatus.CANCELLED)
# Done items without exactly one effect, and other items with an effect.
WRONG = """
SELECT s.status, count(l.seq), count(*) FROM tidemill.item_status s
LEFT JOIN (SELECT job_id, seq, count(*) AS n FROM public.ledger GROUP BY 1, 2) l
    ON l.job_id = s.job_id AND l.seq = s.seq
WHERE s.job_id = %s AND coalesce(l.n, 0) <> CASE WHEN s.status = 'done' THEN 1 ELSE 0 END GROUP BY 1
"""
# The same for a job whose done items may run again.
MISSING = """
SELECT s.status, count(*) FROM tidemill.item_status s WHERE s.job_id = %s AND s.status = 'done'
AND NOT EXISTS (SELECT 1 FROM public.ledger l WHERE l.job_id = s.job_id AND l.seq = s.seq) GROUP BY 1
"""


class Storm:
    """Random operations on a few jobs, and kills of the worker's children. The seed determines their order."""

    def __init__(self, db: Database, workers: Workers, worker: "subprocess.Popen[bytes]", seed: int) -> None:
        self._db = db
        self._workers = workers
        self._worker = worker
        self._rng = random.Random(seed)
        self.jobs: list[UUID] = []
        self.rerun_done: UUID
        self._operations: dict[Callable[[UUID], Awaitable[object]], int] = {
            self._pause: 3,
            self._resume: 6,
            self._cancel: 2,
            self._rerun: 6,
            self._rerun_done: 2,
            self._redrive: 2,
            self._fix: 4,
            self._delete: 1,
            self._kill_child: 4,
        }

    async def add_jobs(self, items: int) -> None:
        for kind in ("dense", "sparse", "dense", "sparse"):
            self.jobs.append(await add_job(self._db, items, kind, sparse=kind == "sparse", batch_size=40))
        self.rerun_done = self.jobs[2]

    async def rage(self, operations: int) -> None:
        for _ in range(operations):
            [operation] = self._rng.choices(list(self._operations), list(self._operations.values()))
            with contextlib.suppress(TidemillError):  # the state of the job does not allow it
                await operation(self._rng.choice(self.jobs))
            await asyncio.sleep(self._rng.uniform(0, 0.05))

    async def finish(self, within: float) -> list[Job]:
        """Resume all jobs and wait until they are closed."""

        async def are_closed() -> list[Job]:
            found = []
            for job_id in list(self.jobs):
                with contextlib.suppress(TidemillError):
                    await job_control.resume_job(self._db, job_id)
                found.append(await job_of(self._db, job_id))
            assert all(job.counts.is_consistent for job in found), [job.counts for job in found]
            return found if all(job.is_closed for job in found) else []

        return await eventually(are_closed, within)

    async def _pause(self, job_id: UUID) -> None:
        await job_control.pause_job(self._db, job_id)

    async def _resume(self, job_id: UUID) -> None:
        await job_control.resume_job(self._db, job_id)

    async def _cancel(self, job_id: UUID) -> None:
        await job_control.cancel_job(self._db, job_id)

    async def _rerun(self, job_id: UUID) -> None:
        await reprocess_items(self._db, job_id, ReprocessSelection(statuses=RERUN))

    async def _rerun_done(self, _: UUID) -> None:
        await reprocess_items(self._db, self.rerun_done, ReprocessSelection(statuses=(ItemStatus.DONE,)))

    async def _redrive(self, _: UUID) -> None:
        await run_dead_letter_operation(self._db, owner_id=None)

    async def _fix(self, job_id: UUID) -> None:
        failed = "SELECT seq FROM tidemill.outcome WHERE job_id = %s AND status = 'failed' ORDER BY random() LIMIT 20"
        seqs = [seq for (seq,) in await rows(self._db, failed, job_id)]
        for seq in seqs:
            await record_item_fix(self._db, job_id, seq, {"n": seq, "fixed": True}, by=LOCAL_USER_ID)
        await reprocess_items(self._db, job_id, ReprocessSelection(seqs=seqs))

    async def _delete(self, job_id: UUID) -> None:
        if len(self.jobs) > 2 and job_id != self.rerun_done:
            await job_control.delete_job(self._db, job_id)
            self.jobs.remove(job_id)

    async def _kill_child(self, _: UUID) -> None:
        for child in self._workers.children(self._worker)[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


async def assert_storm_loses_no_effect(
    workers: Workers, db: Database, *, seed: int, items: int, operations: int, within: float = 90.0
) -> int:
    """Run one storm. Return the number of checked items."""
    workers.app(APP)
    worker = workers.start(processes=2, claim_max=40, log_level="error")
    storm = Storm(db, workers, worker, seed)
    await storm.add_jobs(items)
    await storm.rage(operations)
    jobs = await storm.finish(within)
    for job in jobs:
        wrong = await rows(db, MISSING if job.id == storm.rerun_done else WRONG, job.id)
        assert wrong == [], f"seed {seed}, job {job.kind} {job.counts}"
        assert "poison" not in job.codes, f"seed {seed}: a kill convicted an item"
    await assert_sound(db)
    return sum(job.counts.total for job in jobs)


async def test_operation_storm_loses_and_repeats_no_effects(workers: Workers, db: Database) -> None:
    await rows(db, LEDGER)
    assert await assert_storm_loses_no_effect(workers, db, seed=SEED, items=400, operations=60) >= 800


@pytest.mark.full
async def test_operation_storms_of_many_seeds_lose_and_repeat_no_effects(workers: Workers, db: Database) -> None:
    await rows(db, LEDGER)
    checked = 0
    for seed in range(SEED, SEED + STORMS):
        checked += await assert_storm_loses_no_effect(workers, db, seed=seed, items=ITEMS, operations=150)
        workers.end()
    assert checked >= STORMS * 2 * ITEMS
