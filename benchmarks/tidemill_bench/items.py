"""The benchmark of the engine: jobs in turns with a bare COPY of the same rows, and the report."""

import asyncio
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tidemill.config import Settings
from tidemill.store.database import Database
from tidemill.terminal.console import error_console
from tidemill_bench import database
from tidemill_bench.database import BareItemTables
from tidemill_bench.engine_driver import EngineDriver
from tidemill_bench.environment import Samples, run_measurement
from tidemill_bench.plans import ItemsBenchPlan
from tidemill_bench.results import build_result, compute_spread, describe_spread, round_figure
from tidemill_bench.sample_rows import BARE_JOB_ID, SampleRows

ITEMS_PEAK_PREFIXES = ("rss_mb", "rss_parent_mb")  # reported as maximum; all other figures as median


def build_report(
    plan: ItemsBenchPlan,
    samples: Mapping[str, Sequence[float]],
    server: dict[str, str],
    settings: Settings,
    is_own: bool,
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    found = compute_figures(samples)
    used: dict[str, Any] = {
        "rows": plan.rows,
        "large_rows": plan.large,
        "rounds": plan.rounds,
        "large_rounds": plan.large_rounds,
        "starts": plan.starts,
        "ingest_path": choose_faster_ingest_path(found),
    }
    names = ("claim_max", "worker_lanes", "batch_size", "flush_buffer", "ingest_max_rows", "ingest_max_batch_bytes")
    used |= {name: getattr(settings, name) for name in names}
    return build_result(compute_ratios(found, plan.cost_ratio_name), found, used, server, is_own)


def compute_figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return one number per name."""
    found: dict[str, float] = {}
    for name, values in samples.items():
        if name in ("start_ms", "start_after_commit_ms"):
            stem = name.removesuffix("_ms")
            found[f"{stem}_p50_ms"] = statistics.median(values)
            found[f"{stem}_p95_ms"] = sorted(values)[int(0.95 * (len(values) - 1))]
        else:
            found[name] = max(values) if name.startswith(ITEMS_PEAK_PREFIXES) else statistics.median(values)
    found["bare_spread"] = max(
        compute_spread(samples["bare_copy_per_s"]), compute_spread(samples["bare_process_per_s"])
    )
    for suffix in ("", "_large"):
        found["cost_us_per_item" + suffix] = compute_item_cost_us(found, suffix)
    found["rss_growth_mb"] = found["rss_mb_large"] - found["rss_mb"]
    return {name: round_figure(value) for name, value in sorted(found.items())}


def compute_item_cost_us(found: Mapping[str, float], suffix: str) -> float:
    """Return the microseconds to read an item from a file and to process it with two processes."""
    return 1e6 / found["ingest_file_per_s" + suffix] + 1e6 / found["process_2_per_s" + suffix]


def choose_faster_ingest_path(found: Mapping[str, float]) -> str:
    """Return the faster way to submit rows: ``file`` or ``inline``."""
    return "file" if found["ingest_file_per_s"] >= found["ingest_inline_per_s"] else "inline"


def compute_ratios(found: Mapping[str, float], cost_ratio: str) -> dict[str, float]:
    """Return the ratios. Both figures of a ratio are in the report."""
    ratios = {cost_ratio: found["cost_us_per_item_large"] / found["cost_us_per_item"]}
    for suffix in ("", "_large"):
        copy, bare = found.get("bare_copy_per_s" + suffix), found.get("bare_process_per_s" + suffix)
        if copy is None or bare is None:
            continue
        for path in ("file", "inline"):
            ratios[f"ingest_{path}_vs_copy{suffix}"] = found[f"ingest_{path}_per_s{suffix}"] / copy
        ratios["ingest_vs_copy" + suffix] = ratios[f"ingest_{choose_faster_ingest_path(found)}_vs_copy{suffix}"]
        ratios["process_1_vs_bare" + suffix] = found["process_1_per_s" + suffix] / bare
        ratios["process_vs_bare" + suffix] = found["process_2_per_s" + suffix] / bare
    return {name: round(value, 3) for name, value in sorted(ratios.items())}


def describe_noise(found: Mapping[str, float]) -> str | None:
    return describe_spread(found["bare_spread"])


STATISTICS_POLL_S = 0.25
LARGE_SUFFIX = "_large"

SampleLists = defaultdict[str, list[float]]


class ItemsMeasurement:
    """Collects the samples of a plan. Names that end in ``_large`` are of the larger size."""

    def __init__(
        self, plan: ItemsBenchPlan, db: Database, engine: EngineDriver, bare: BareItemTables, folder: Path
    ) -> None:
        self.samples: SampleLists = defaultdict(list)
        self._plan = plan
        self._db = db
        self._engine = engine
        self._bare = bare
        self._folder = folder

    async def collect_samples(self) -> SampleLists:
        plan = self._plan
        self._record("load_average_before", os.getloadavg()[0])
        with error_console.status("Preparing rows") as status:
            small = await asyncio.to_thread(SampleRows, self._folder, plan.rows)
            large = await asyncio.to_thread(SampleRows, self._folder, plan.large)
            for number in range(plan.rounds):
                status.update(f"Round {number + 1} of {plan.rounds}: {plan.rows:,} items")
                await self._measure_round(small, "", with_bare_runs=True)
                if number < plan.large_rounds:
                    status.update(f"Round {number + 1} of {plan.rounds}: {plan.large:,} items")
                    await self._measure_round(large, LARGE_SUFFIX, with_bare_runs=plan.full)
            status.update("Start latency")
            await self._measure_start_latency()
        return self.samples

    async def _measure_round(self, rows: SampleRows, suffix: str, *, with_bare_runs: bool) -> None:
        """Measure jobs, each between two bare runs. Without bare runs, measure only the cost per item."""
        dead, settled = await self._read_row_versions(), rows.n
        if with_bare_runs:
            await self._measure_bare_copy(rows, suffix)
            await self._measure_inline_job(rows, suffix)
            await self._measure_bare_copy(rows, suffix)
            settled += rows.n
        await self._measure_file_job(rows, suffix)
        if with_bare_runs:
            await self._measure_bare_copy(rows, suffix)
        self._record("dead_tuples_per_item" + suffix, (await self._read_row_versions() - dead) / settled)

    async def _measure_bare_copy(self, rows: SampleRows, suffix: str) -> None:
        bare, wal = self._bare, await self._read_wal_bytes()
        await asyncio.to_thread(bare.truncate)
        seconds = await asyncio.to_thread(bare.copy_items, rows.read_item_chunks())
        self._record("bare_copy_per_s" + suffix, rows.n / seconds)
        seconds = await asyncio.to_thread(bare.copy_outcomes, BARE_JOB_ID, rows.read_outcome_blocks())
        self._record("bare_process_per_s" + suffix, rows.n / seconds)
        self._record("bare_wal_bytes_per_item" + suffix, (await self._read_wal_bytes() - wal) / rows.n)

    async def _measure_inline_job(self, rows: SampleRows, suffix: str) -> None:
        """Measure a job with inline rows and one worker process."""
        job_id, seconds = await self._engine.submit_inline(rows.n)
        self._record("ingest_inline_per_s" + suffix, rows.n / seconds)
        async with self._engine.start_warm_worker(1) as worker:
            seconds = await self._engine.process_job(job_id, rows.n, worker)
        self._record("process_1_per_s" + suffix, rows.n / seconds)

    async def _measure_file_job(self, rows: SampleRows, suffix: str) -> None:
        """Measure a job from a file and two worker processes."""
        wal = await self._read_wal_bytes()
        job_id, seconds = await self._engine.ingest_file(rows.ndjson)
        ingest_wal = await self._read_wal_bytes() - wal
        self._record("ingest_file_per_s" + suffix, rows.n / seconds)
        async with self._engine.start_warm_worker(2) as worker:
            wal, cpu = await self._read_wal_bytes(), worker.cpu_seconds()
            seconds = await self._engine.process_job(job_id, rows.n, worker)
            wal, cpu = await self._read_wal_bytes() - wal, worker.cpu_seconds() - cpu
        self._record("process_2_per_s" + suffix, rows.n / seconds)
        self._record("process_2_cpu_us_per_item" + suffix, cpu / rows.n * 1e6)
        self._record("wal_bytes_per_item" + suffix, (ingest_wal + wal) / rows.n)
        self._record("rss_mb" + suffix, worker.child_rss_mb)
        self._record("rss_parent_mb" + suffix, worker.parent_rss_mb)

    async def _measure_start_latency(self) -> None:
        async with self._engine.start_warm_worker(2) as worker:
            for _ in range(self._plan.starts):
                since_call, since_return = await self._engine.measure_start_latency(worker)
                self._record("start_ms", since_call)
                self._record("start_after_commit_ms", max(0.0, since_return))  # it may start before submit returns

    async def _read_wal_bytes(self) -> float:
        return await self._db.run(database.read_wal_bytes)

    async def _read_row_versions(self) -> float:
        """Return the count when it is stable: connections of a stopped worker report their statistics at their end."""
        deadline = time.monotonic() + 20 * STATISTICS_POLL_S
        before, now = -1.0, await self._db.run(database.count_row_versions)
        while now != before and time.monotonic() < deadline:
            await asyncio.sleep(STATISTICS_POLL_S)
            before, now = now, await self._db.run(database.count_row_versions)
        return now

    def _record(self, name: str, value: float) -> None:
        self.samples[name].append(value)


def run_benchmark(plan: ItemsBenchPlan) -> dict[str, Any]:
    """Run the benchmark of the engine; return its report."""

    async def collect_samples(db: Database, settings: Settings, engine: EngineDriver) -> Samples:
        with BareItemTables(db.url) as bare:
            return await ItemsMeasurement(plan, db, engine, bare, settings.home).collect_samples()

    return run_measurement(collect_samples, lambda *found: build_report(plan, *found))
