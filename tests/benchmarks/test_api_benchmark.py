"""The benchmark of the service: its job, its places, its report and what it leaves behind; never its speed."""

import asyncio
import json
from pathlib import Path
from typing import cast
from uuid import uuid4

import pytest
from typer.testing import CliRunner

from support import assert_sound, job_of, rows
from tidemill.cli.main import app
from tidemill.core.errors import TidemillError
from tidemill.store.database import Database
from tidemill_bench import api, big_job, results
from tidemill_bench.api import run_benchmark
from tidemill_bench.api_load import STATUS_FILTERS, find_page_probes
from tidemill_bench.http_client import RawHttpClient, TimedResponse
from tidemill_bench.plans import FULL_API_PLAN, ApiBenchPlan

TINY = ApiBenchPlan(items=3_000, rounds=1, pollers=4, submitters=2, seconds=1.0, upload_mb=2)
PAGES = {
    ("all", "first"): [10.0, 11.0, 12.0],
    ("all", "seek_last"): [30.0],
    ("failed", "first"): [4.0, 5.0, 6.0],
    ("failed", "last"): [5.0, 7.5, 9.0],
    ("pending", "first"): [20.0],
    ("pending", "last"): [20.0],
}
SAMPLES = {"job_ms": [float(n) for n in range(1, 201)], "bare_ms": [1.0], "upload_rss_growth_mb": [3.0, 2.0]}


class Liar:
    """Says that a job has more items than it lists."""

    async def get(self, path: str) -> TimedResponse:
        if "/items" in path:
            return TimedResponse(200, json.dumps({"items": [{}] * 3}).encode(), 1.0)
        counts = dict.fromkeys(("pending", "processing", "retry_wait", "done", "failed"), 4)
        return TimedResponse(200, json.dumps({"counts": counts | {"total": 20}}).encode(), 1.0)


@pytest.mark.parametrize("items", [1_000, 2_345])
async def test_api_benchmark_job_has_every_item_status_and_exact_counters(db: Database, items: int) -> None:
    job_id = await big_job.create_big_job(db, 0, "bench.noop", items)
    await assert_sound(db, job_id)
    counts = (await job_of(db, job_id)).counts
    assert counts.total == items
    found = {name: getattr(counts, name) for filter_ in STATUS_FILTERS for name in filter_}
    assert min(found.values()) > 0, found
    batches = "SELECT state, seqs IS NULL, bool_or(open < hi - lo AND open > 0) FROM tidemill.batch WHERE NOT folded"
    assert set(await rows(db, f"{batches} GROUP BY 1, 2")) >= {("leased", True, True), ("ready", True, True)}


async def test_api_benchmark_stops_when_list_length_differs_from_count() -> None:
    with pytest.raises(TidemillError, match="listed 3 items instead of 4"):
        await find_page_probes(cast("RawHttpClient", Liar()), uuid4())


def test_api_benchmark_page_figure_is_that_of_slowest_filter() -> None:
    found = api.compute_figures(SAMPLES, PAGES)
    assert found["page_all_p99_ms"] == found["page_p99_ms"] == 30
    assert found["page_failed_p99_ms"] == 9
    assert found["page_first_p99_ms"] == found["page_p50_ms"] == 20
    assert (found["job_p50_ms"], found["job_p99_ms"]) == (100.5, 199)
    assert found["upload_rss_growth_mb"] == 3


def test_api_benchmark_depth_ratio_uses_most_expensive_filter() -> None:
    assert api.compute_depth_ratio(PAGES) == 1.5
    assert api.compute_depth_ratio({("all", "first"): [1.0]}) == 1


def test_api_benchmark_warns_when_machine_is_noisy() -> None:
    assert api.describe_noise({"bare_p99_ms": 5.0}) is None
    assert "not quiet" in (api.describe_noise({"bare_p99_ms": 60.0}) or "")


def test_api_benchmark_full_plan_has_documented_sizes() -> None:
    assert (FULL_API_PLAN.items, FULL_API_PLAN.upload_mb) == (5_000_000, 1_024)
    assert (FULL_API_PLAN.pollers, FULL_API_PLAN.submitters) == (200, 20)


def test_api_benchmark_rejects_too_few_items() -> None:
    found = CliRunner().invoke(app, ["bench", "api", "--items", "10"])
    assert found.exit_code == 2
    assert "--items" in found.output


async def test_api_benchmark_measures_all_targets_and_cleans_up(
    db: Database, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    result = await asyncio.to_thread(run_benchmark, TINY)
    figures = result["figures"]
    assert results.API_MAXIMUMS.keys() <= figures.keys() | result["ratios"].keys()
    assert figures["api_errors"] == 0
    assert figures["api_requests"] >= TINY.client_count
    assert all(value > 0 for name, value in figures.items() if name.endswith(("_ms", "_per_s", "_rss_mb")))
    for filter_ in STATUS_FILTERS:
        assert f"page_{'+'.join(filter_) or 'all'}_p99_ms" in figures
    assert result["settings"]["items"] == TINY.items
    assert tidemill_database not in json.dumps(result)
    for table in ("job", "batch", "item", "outcome", "ingest", "job_tally", "deleted_job", "api_key", "unneeded_file"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert await rows(db, "SELECT name FROM tidemill.app_user") == [("local",)]
    assert await rows(db, "SELECT name FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.')") == []
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
