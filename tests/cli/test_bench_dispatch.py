"""The benchmark of wake-ups: its arithmetic, and what it leaves behind; never its speed."""

import asyncio
from pathlib import Path

import pytest

from support import rows
from tidemill.cli.bench import targets
from tidemill.cli.bench.brokers import redis_binary
from tidemill.cli.bench.dispatch import places, report
from tidemill.cli.bench.dispatch.plan import Plan
from tidemill.cli.bench.dispatch.run import run
from tidemill.config import load_settings
from tidemill.store.database import Database

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


def test_ratios_are_of_the_medians_and_the_slowest_counts() -> None:
    found = report.figures(SAMPLES)
    assert report.ratios(found) == {"redis_vs_postgres": 0.8, "rabbitmq_vs_postgres": 0.5, "limiter_overhead": 0.04}
    assert (found["wake_p50_ms"], found["postgres_wake_p50_ms"], found["relay_10k_s"]) == (4.0, 2.0, 1.5)
    assert targets.is_met("redis_vs_postgres", 0.8)
    assert not targets.is_met("rabbitmq_vs_postgres", 0.5)
    assert not targets.is_met("wake_p50_ms", 20.1)
    assert not targets.is_met("relay_10k_s", 2.1)
    assert not targets.is_met("limiter_overhead", 0.06)


def test_what_is_not_there_is_said() -> None:
    samples = {name: values for name, values in SAMPLES.items() if not name.startswith("rabbitmq")}
    made = report.report(Plan(), samples, {"server_version": "18"}, load_settings(), True)
    assert made["settings"]["rabbitmq_vs_postgres"].startswith("NOT MEASURED")
    assert "rabbitmq_vs_postgres" not in made["ratios"]


@pytest.mark.full  # it starts two workers with two processes each
@pytest.mark.skipif(redis_binary() is None, reason="NOT RUN: there is no redis on this machine")
def test_it_measures_and_leaves_nothing_behind(
    tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    monkeypatch.setitem(places.BINARIES, "rabbitmq", lambda: None)  # its start would be most of the test
    made = run(Plan(jobs=2, rows=50, rounds=1, starts=1, hints=30))
    assert made["ratios"]["redis_vs_postgres"] > 0
    assert {"redis_wake_p50_ms", "postgres_wake_p50_ms", "redis_relay_10k_s"} <= set(made["figures"])
    assert "NOT MEASURED: there is no rabbitmq" in " ".join(capsys.readouterr().err.split())

    async def left() -> list[int]:
        async with Database(tidemill_database, size=1) as db:
            tables = ("job", "item", "outcome", "batch", "outbox", "broker", "quarantine")
            return [(await rows(db, f"SELECT count(*) FROM tidemill.{table}"))[0][0] for table in tables]

    assert asyncio.run(left()) == [0] * 7
