"""The benchmark of wake-ups: its arithmetic, and what it leaves behind; never its speed."""

import asyncio
from pathlib import Path

import pytest

from support import rows
from support.brokers import need
from tidemill.config import load_settings
from tidemill.store.database import Database
from tidemill_bench import dispatch, results
from tidemill_bench import dispatch as report
from tidemill_bench.dispatch import run_benchmark
from tidemill_bench.plans import DispatchBenchPlan

SAMPLES = {
    "postgres_per_s": [90.0, 100.0, 110.0],
    "redis_per_s": [80.0],
    "rabbitmq_per_s": [50.0],
    "postgres_wake_ms": [1.0, 2.0, 9.0],
    "redis_wake_ms": [3.0],
    "rabbitmq_wake_ms": [4.0],
    "redis_relay_10k_s": [1.0],
    "rabbitmq_relay_10k_s": [1.5],
    "limiter_overhead": [0.04],
}


def test_dispatch_benchmark_ratios_use_medians_and_slowest_broker() -> None:
    found = report.compute_figures(SAMPLES)
    assert report.compute_ratios(found) == {
        "redis_vs_postgres": 0.8,
        "rabbitmq_vs_postgres": 0.5,
        "limiter_overhead": 0.04,
    }
    assert (found["wake_p50_ms"], found["postgres_wake_p50_ms"], found["relay_10k_s"]) == (4.0, 2.0, 1.5)
    assert results.meets_target("redis_vs_postgres", 0.8)
    assert not results.meets_target("rabbitmq_vs_postgres", 0.5)
    assert not results.meets_target("wake_p50_ms", 20.1)
    assert not results.meets_target("relay_10k_s", 2.1)
    assert not results.meets_target("limiter_overhead", 0.06)


def test_dispatch_benchmark_reports_missing_broker_as_not_measured() -> None:
    samples = {name: values for name, values in SAMPLES.items() if not name.startswith("rabbitmq")}
    made = report.build_report(DispatchBenchPlan(), samples, {"server_version": "18"}, load_settings(), True)
    assert made["settings"]["rabbitmq_vs_postgres"].startswith("NOT MEASURED")
    assert "rabbitmq_vs_postgres" not in made["ratios"]


@pytest.mark.full  # it starts two workers with two processes each
def test_dispatch_benchmark_measures_brokers_and_cleans_up(
    tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("redis")
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    monkeypatch.setitem(dispatch.BROKER_BINARY_FINDERS, "rabbitmq", lambda: None)  # its start would be most of the test
    made = run_benchmark(DispatchBenchPlan(jobs=2, rows=50, rounds=1, starts=1, hints=30))
    assert made["ratios"]["redis_vs_postgres"] > 0
    assert {"redis_wake_p50_ms", "postgres_wake_p50_ms", "redis_relay_10k_s"} <= set(made["figures"])
    assert "NOT MEASURED: rabbitmq is not installed" in " ".join(capsys.readouterr().err.split())

    async def left() -> list[int]:
        async with Database(tidemill_database, size=1) as db:
            tables = ("job", "item", "outcome", "batch", "outbox", "broker", "quarantine")
            return [(await rows(db, f"SELECT count(*) FROM tidemill.{table}"))[0][0] for table in tables]

    assert asyncio.run(left()) == [0] * 7
