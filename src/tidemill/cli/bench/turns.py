"""Bare and engine in turns, round after round."""

import asyncio
import os
import time
from collections import defaultdict
from pathlib import Path

from tidemill.cli.bench.engine import Engine
from tidemill.cli.bench.plan import Plan
from tidemill.cli.bench.rows import JOB, Rows
from tidemill.cli.views import errors
from tidemill.store import bench
from tidemill.store.bench import Bare
from tidemill.store.database import Database

SETTLE_S = 0.25
LARGE = "_large"

Samples = defaultdict[str, list[float]]


class Turns:
    """Takes every sample of a plan. Names that end in ``_large`` are of the larger size."""

    def __init__(self, plan: Plan, db: Database, engine: Engine, bare: Bare, folder: Path) -> None:
        self.samples: Samples = defaultdict(list)
        self._plan = plan
        self._db = db
        self._engine = engine
        self._bare = bare
        self._folder = folder

    async def take(self) -> Samples:
        plan = self._plan
        self._note("load_average_before", os.getloadavg()[0])
        with errors.status("preparing rows") as status:
            small = await asyncio.to_thread(Rows, self._folder, plan.rows)
            large = await asyncio.to_thread(Rows, self._folder, plan.large)
            for number in range(plan.rounds):
                status.update(f"round {number + 1} of {plan.rounds}: {plan.rows:,} items")
                await self._round(small, "", whole=True)
                if number < plan.large_rounds:
                    status.update(f"round {number + 1} of {plan.rounds}: {plan.large:,} items")
                    await self._round(large, LARGE, whole=plan.full)
            status.update("start latency")
            await self._starts()
        return self.samples

    async def _round(self, rows: Rows, suffix: str, *, whole: bool) -> None:
        """The engine's turns, each between two bare ones; only what the cost per item needs unless ``whole``."""
        dead, turned = await self._row_versions(), rows.n
        if whole:
            await self._bare_turn(rows, suffix)
            await self._inline_turn(rows, suffix)
            await self._bare_turn(rows, suffix)
            turned += rows.n
        await self._file_turn(rows, suffix)
        if whole:
            await self._bare_turn(rows, suffix)
        self._note("dead_tuples_per_item" + suffix, (await self._row_versions() - dead) / turned)

    async def _bare_turn(self, rows: Rows, suffix: str) -> None:
        bare, wal = self._bare, await self._wal()
        await asyncio.to_thread(bare.empty)
        seconds = await asyncio.to_thread(bare.copy_items, rows.item_pieces())
        self._note("bare_copy_per_s" + suffix, rows.n / seconds)
        seconds = await asyncio.to_thread(bare.settle, JOB, rows.outcome_blocks())
        self._note("bare_process_per_s" + suffix, rows.n / seconds)
        self._note("bare_wal_bytes_per_item" + suffix, (await self._wal() - wal) / rows.n)

    async def _inline_turn(self, rows: Rows, suffix: str) -> None:
        """Rows with the submission, processed by one process."""
        job_id, seconds = await self._engine.submit_inline(rows.n)
        self._note("ingest_inline_per_s" + suffix, rows.n / seconds)
        async with self._engine.worker(1) as worker:
            seconds = await self._engine.process(job_id, rows.n, worker)
        self._note("process_1_per_s" + suffix, rows.n / seconds)

    async def _file_turn(self, rows: Rows, suffix: str) -> None:
        """Rows from a file, processed by two processes."""
        wal = await self._wal()
        job_id, seconds = await self._engine.ingest_file(rows)
        ingest_wal = await self._wal() - wal
        self._note("ingest_file_per_s" + suffix, rows.n / seconds)
        async with self._engine.worker(2) as worker:
            wal, cpu = await self._wal(), worker.cpu_seconds()
            seconds = await self._engine.process(job_id, rows.n, worker)
            wal, cpu = await self._wal() - wal, worker.cpu_seconds() - cpu
        self._note("process_2_per_s" + suffix, rows.n / seconds)
        self._note("process_2_cpu_us_per_item" + suffix, cpu / rows.n * 1e6)
        self._note("wal_bytes_per_item" + suffix, (ingest_wal + wal) / rows.n)
        self._note("rss_mb" + suffix, worker.child_rss_mb)
        self._note("rss_parent_mb" + suffix, worker.parent_rss_mb)

    async def _starts(self) -> None:
        async with self._engine.worker(2) as worker:
            for _ in range(self._plan.starts):
                since_call, since_return = await self._engine.start_latency(worker)
                self._note("start_ms", since_call)
                self._note("start_after_commit_ms", since_return)

    async def _wal(self) -> float:
        return await self._db.run(bench.wal_bytes)

    async def _row_versions(self) -> float:
        """The count, when no server process has any more to add: those of a stopped worker take a moment to end."""
        deadline = time.monotonic() + 20 * SETTLE_S
        before, now = -1.0, await self._db.run(bench.row_versions)
        while now != before and time.monotonic() < deadline:
            await asyncio.sleep(SETTLE_S)
            before, now = now, await self._db.run(bench.row_versions)
        return now

    def _note(self, name: str, value: float) -> None:
        self.samples[name].append(value)
