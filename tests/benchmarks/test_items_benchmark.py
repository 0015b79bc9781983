"""The benchmark's report: its shape and its arithmetic, never its speed."""

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from support import rows
from tidemill.cli.main import app
from tidemill.store.database import Database
from tidemill_bench import items as report
from tidemill_bench import results
from tidemill_bench.database import BareItemTables
from tidemill_bench.plans import ItemsBenchPlan
from tidemill_bench.sample_rows import BARE_JOB_ID, SampleRows, repeat_inputs

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


def test_item_benchmark_figures_are_medians_and_peaks_of_samples() -> None:
    found = report.compute_figures(SAMPLES)
    assert found["bare_copy_per_s"] == 200_000
    assert found["process_2_per_s"] == 50_000
    assert found["rss_mb"] == 70
    assert found["rss_growth_mb"] == 5
    assert (found["start_p50_ms"], found["start_p95_ms"]) == (21, 39)
    assert found["bare_spread"] == 4, "800,000 apart, at a median of 200,000"
    assert found["cost_us_per_item"] == 20 + 20
    assert found["cost_us_per_item_large"] == 25 + 25


def test_item_benchmark_ratios_are_quotients_of_figures() -> None:
    made = report.compute_ratios(report.compute_figures(SAMPLES), "cost_1m_vs_100k")
    assert made == {
        "cost_1m_vs_100k": 1.25,
        "ingest_file_vs_copy": 0.25,
        "ingest_inline_vs_copy": 0.6,
        "ingest_vs_copy": 0.6,
        "process_1_vs_bare": 0.5,
        "process_vs_bare": 0.625,
    }


def test_item_benchmark_reports_large_ratios_when_large_size_is_measured() -> None:
    large = {name.removesuffix("_large") + "_large": values for name, values in SAMPLES.items()}
    found = report.compute_figures(large | SAMPLES | {"ingest_file_per_s": [130_000.0]})
    made = report.compute_ratios(found, ItemsBenchPlan(1, 2, 1, full=True).cost_ratio_name)
    assert made["process_vs_bare_large"] == 0.5
    assert made["ingest_vs_copy_large"] == made["ingest_file_vs_copy_large"] == 0.2


def test_benchmark_target_is_met_missed_or_undefined() -> None:
    assert results.meets_target("process_vs_bare", 0.5) is True
    assert results.meets_target("process_vs_bare", 0.49) is False
    assert results.meets_target("start_p50_ms", 20.1) is False
    assert results.meets_target("dead_tuples_per_item", 0.01) is True
    assert results.meets_target("process_1_per_s", 1.0) is None


async def test_item_benchmark_baseline_writes_same_rows_as_engine(
    db: Database, tidemill_database: str, tmp_path: Path
) -> None:
    prepared = SampleRows(tmp_path, 2_500)
    with BareItemTables(tidemill_database) as bare:
        bare.copy_items(prepared.read_item_chunks())
        bare.copy_outcomes(BARE_JOB_ID, prepared.read_outcome_blocks())
    items = await rows(db, "SELECT seq, input FROM tidemill_bench.item ORDER BY seq")
    assert items == list(enumerate(repeat_inputs(2_500)))
    assert [json.loads(line) for line in prepared.ndjson.read_text().splitlines()] == list(repeat_inputs(2_500))
    settled = await rows(db, "SELECT seq, status FROM tidemill_bench.outcome ORDER BY seq")
    assert settled == [(seq, "done") for seq in range(2_500)]


async def test_item_benchmark_prints_one_json_object_and_cleans_up(
    db: Database, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    result = await asyncio.to_thread(bench, "--json", "--rows", "300", "--rounds", "1", "--starts", "3")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    assert set(printed) == {"ratios", "figures", "versions", "settings"}
    figures = printed["figures"]
    assert all(value > 0 for name, value in figures.items() if name.endswith(("_per_s", "_us_per_item")))
    assert figures["start_p50_ms"] > figures["start_after_commit_p50_ms"] >= 0
    asked = {*results.ENGINE_MINIMUMS, *results.ENGINE_MAXIMUMS} - {"cost_1m_vs_100k"}
    assert asked <= printed["ratios"].keys() | figures.keys()
    assert printed["ratios"] == report.compute_ratios(figures, "cost_large_vs_small")
    assert printed["settings"]["rows"] == 300
    assert printed["settings"]["database"] == "DATABASE_URL"
    assert tidemill_database not in json.dumps(printed)
    for table in ("job", "batch", "item", "outcome", "ingest", "job_tally", "deleted_job"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert await rows(db, "SELECT name FROM tidemill.kind WHERE NOT starts_with(name, 'tidemill.')") == []
    assert await rows(db, "SELECT to_regnamespace('tidemill_bench')") == [(None,)]
    assert not await asyncio.to_thread(lambda: list(tmp_path.iterdir()))


def test_item_benchmark_rejects_full_with_rows_option() -> None:
    found = bench("--full", "--rows", "10")
    assert found.exit_code != 0
    assert "Remove --rows" in str(found.exception)
