"""The benchmark's report: its shape and its arithmetic, never its speed."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support import rows
from tidemill.cli.bench import report, targets
from tidemill.cli.bench.plan import Plan
from tidemill.cli.bench.rows import JOB, Rows, inputs
from tidemill.cli.main import app
from tidemill.store.bench import Bare
from tidemill.store.database import Database

SAMPLES = {
    "bare_copy_per_s": [100_000.0, 200_000.0, 900_000.0],
    "bare_process_per_s": [80_000.0],
    "ingest_file_per_s": [50_000.0],
    "ingest_file_per_s_large": [40_000.0],
    "ingest_inline_per_s": [120_000.0],
    "process_1_per_s": [40_000.0],
    "process_2_per_s": [20_000.0, 60_000.0, 50_000.0],
    "process_2_per_s_large": [40_000.0],
    "rss_mb": [50.0, 70.0, 60.0],
    "rss_mb_large": [75.0],
    "start_ms": [float(n) for n in range(1, 42)],
}


def bench(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", "items", *arguments])


def test_figures_are_medians_and_peaks_of_the_samples() -> None:
    found = report.figures(SAMPLES)
    assert found["bare_copy_per_s"] == 200_000
    assert found["process_2_per_s"] == 50_000
    assert found["rss_mb"] == 70
    assert found["rss_growth_mb"] == 5
    assert (found["start_p50_ms"], found["start_p95_ms"]) == (21, 39)
    assert found["bare_spread"] == 4, "800,000 apart, at a median of 200,000"
    assert found["cost_us_per_item"] == 20 + 20
    assert found["cost_us_per_item_large"] == 25 + 25


def test_ratios_are_quotients_of_figures() -> None:
    made = report.ratios(report.figures(SAMPLES), "cost_1m_vs_100k")
    assert made == {
        "cost_1m_vs_100k": 1.25,
        "ingest_file_vs_copy": 0.25,
        "ingest_inline_vs_copy": 0.6,
        "ingest_vs_copy": 0.6,
        "process_1_vs_bare": 0.5,
        "process_vs_bare": 0.625,
    }


def test_ratios_of_the_larger_size_are_there_when_it_was_measured_whole() -> None:
    large = {name.removesuffix("_large") + "_large": values for name, values in SAMPLES.items()}
    found = report.figures(large | SAMPLES | {"ingest_file_per_s": [130_000.0]})
    made = report.ratios(found, Plan(1, 2, 1, full=True).cost_ratio)
    assert made["process_vs_bare_large"] == 0.5
    assert made["ingest_vs_copy_large"] == made["ingest_file_vs_copy_large"] == 0.2


def test_a_target_is_reached_missed_or_not_there() -> None:
    assert targets.is_met("process_vs_bare", 0.5) is True
    assert targets.is_met("process_vs_bare", 0.49) is False
    assert targets.is_met("start_p50_ms", 20.1) is False
    assert targets.is_met("dead_tuples_per_item", 0.01) is True
    assert targets.is_met("process_1_per_s", 1.0) is None


async def test_the_bare_tables_take_the_same_rows_as_the_engine(
    db: Database, tidemill_database: str, tmp_path: Path
) -> None:
    prepared = Rows(tmp_path, 2_500)
    with Bare(tidemill_database) as bare:
        bare.copy_items(prepared.item_pieces())
        bare.settle(JOB, prepared.outcome_blocks())
    items = await rows(db, "SELECT seq, input FROM tidemill_bench.item ORDER BY seq")
    assert items == list(enumerate(inputs(2_500)))
    assert [json.loads(line) for line in prepared.ndjson.read_text().splitlines()] == list(inputs(2_500))
    settled = await rows(db, "SELECT seq, status FROM tidemill_bench.outcome ORDER BY seq")
    assert settled == [(seq, "done") for seq in range(2_500)]


async def test_a_run_prints_one_object_and_leaves_nothing_behind(
    db: Database, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    result = await asyncio.to_thread(bench, "--json", "--rows", "300", "--rounds", "1", "--starts", "3")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert set(printed) == {"ratios", "figures", "versions", "settings"}
    figures = printed["figures"]
    assert all(value > 0 for name, value in figures.items() if name.endswith(("_per_s", "_p50_ms", "_us_per_item")))
    asked = {*targets.ENGINE_AT_LEAST, *targets.ENGINE_AT_MOST} - {"cost_1m_vs_100k"}
    assert asked <= printed["ratios"].keys() | figures.keys()
    assert printed["ratios"] == report.ratios(figures, "cost_large_vs_small")
    assert printed["settings"]["rows"] == 300
    assert printed["settings"]["database"] == "DATABASE_URL"
    assert tidemill_database not in json.dumps(printed)
    for table in ("job", "batch", "item", "outcome", "ingest", "job_tally", "deleted_job"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert await rows(db, "SELECT name FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.')") == []
    assert await rows(db, "SELECT to_regnamespace('tidemill_bench')") == [(None,)]
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


def test_full_and_rows_exclude_each_other() -> None:
    found = bench("--full", "--rows", "10")
    assert found.exit_code != 0
    assert "leave --rows out" in str(found.exception)
