"""The benchmarks of load, of a hostile neighbour and of quotas, at a tiny size: what they measure, never its speed."""

import asyncio
import json
from pathlib import Path

import pytest

from support import rows
from tidemill.store.database import Database
from tidemill_bench import load, load_plots, neighbour, quotas
from tidemill_bench.plans import LoadBenchPlan, NeighbourBenchPlan

TINY = LoadBenchPlan(
    items=2_000,
    small_items=200,
    small_rounds=1,
    workers=2,
    children=1,
    worker_items=20_000,  # more than two workers process before they write their first claims
    clients=8,
    client_requests_per_s=16.0,
    client_s=1.0,
    snapshot_s=1.0,
    snapshot_items_per_s=1_000,
    huge_items=2_000,
    small_jobs=2,
    soak_s=2.0,
    soak_sample_s=0.5,
)
EXPECTED_FIGURES = {
    "job": {"job_items_per_s", "job_claim_p99_ms", "job_rss_mb"},
    "workers": {"workers_claims_per_s", "workers_connections"},
    "clients": {"clients_p99_ms", "clients_errors"},
    "snapshot": {"snapshot_held_s", "snapshot_claims"},
    "fairness": {"small_job_start_p50_ms", "small_job_start_p99_ms"},
    "soak": {"soak_growth_percent", "soak_imports", "soak_dead_tuples", "soak_connections"},
}


@pytest.fixture
def bench(tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let the benchmarks use the database of the test."""
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path / "home"))
    return tidemill_database


@pytest.mark.parametrize("name", load.MEASUREMENTS)
async def test_load_measurement_runs_on_its_own_and_removes_its_data(
    name: str, bench: str, db: Database, tmp_path: Path
) -> None:
    result = await asyncio.to_thread(load.run_benchmark, TINY, [name])
    assert EXPECTED_FIGURES[name] <= result["figures"].keys()
    assert result["figures"].get("clients_errors", 0) == 0
    assert bench not in json.dumps(result)
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(0,)]
    assert await rows(db, "SELECT name FROM tidemill.app_user") == [("local",)]
    plots = load_plots.write_plots(result["series"], tmp_path / "plots")
    assert [plot.name for plot in plots] == ([f"load-{name}.svg"] if name in ("job", "soak") else [])


async def test_quota_probes_reach_every_limit_and_lose_nothing(bench: str, db: Database) -> None:
    result = await asyncio.to_thread(quotas.run_quota_probes)
    assert {one["limit"] for one in result["quotas"]} == set(quotas.PROBED_LIMITS)
    assert {one["status"] for one in result["quotas"]} == {403, 413, 429}
    assert all(one["detail"] for one in result["quotas"])
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_neighbour_benchmark_imports_during_attacks(bench: str, db: Database) -> None:
    plan = NeighbourBenchPlan(1_000, 1, 1_000, 0.5, ("deep_json", "terminating_trigger"))
    result = await asyncio.to_thread(neighbour.run_benchmark, plan)
    assert result["ratios"]["neighbour_import_vs_quiet"] > 0
    assert result["figures"]["neighbour_health_p99_ms"] > 0
    assert all(report["statuses"] for report in result["attacks"].values())
    assert await rows(db, "SELECT count(*) FROM tidemill.job") == [(0,)]
