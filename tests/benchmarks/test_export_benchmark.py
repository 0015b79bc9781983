"""The benchmark of exports: its arithmetic, its parts, and what it leaves behind; never its speed."""

import asyncio
import json
import os
import socket
import threading
from pathlib import Path

import openpyxl
import pytest

from support import rows
from tidemill.config import load_settings
from tidemill.core.errors import TidemillError
from tidemill.core.file_format import FileFormat, OutputColumn, OutputFileSpec
from tidemill.store.database import Database
from tidemill_bench import exports, results, workbooks
from tidemill_bench.exports import run_benchmark
from tidemill_bench.http_client import drain_stream
from tidemill_bench.plans import FULL_EXPORT_PLAN, ExportBenchPlan

SAMPLES = {
    "copy_to_reader_s": [1.0, 3.0, 2.0],
    "csv_stream_s": [4.0],
    "copy_to_file_s": [2.0],
    "csv_file_s": [2.0],
    "parquet_s": [8.0],
    "ndjson_copy_s": [5.0],
    "ndjson_stream_s": [10.0],
    "xlsx_s": [1.0],
    "xlsxwriter_s": [7.0],
    "files_s": [4.0],
    "obstore_s": [1.0, 3.0],
    "reused_s": [0.5],
    "service_rss_mb": [60.0, 90.0],
    "worker_rss_mb": [80.0],
}


def test_export_benchmark_ratios_are_relative_to_baselines() -> None:
    found = exports.compute_figures(ExportBenchPlan(users=100, book_rows=7, inputs=10), SAMPLES)
    assert exports.compute_ratios(found) == {
        "csv_stream_vs_copy": 0.5,
        "csv_file_vs_copy": 1,
        "ndjson_vs_copy": 0.5,
        "parquet_vs_copy": 0.25,
        "xlsx_vs_xlsxwriter": 7,
        "files_vs_obstore": 0.5,
    }
    assert found["csv_stream_per_s"] == 25
    assert found["xlsxwriter_per_s"] == 1
    assert found["reused_per_s"] == 20
    assert found["rss_mb"] == 90
    assert found["copy_spread"] == 1


def test_export_benchmark_omits_xlsx_ratio_without_xlsxwriter() -> None:
    samples = {name: values for name, values in SAMPLES.items() if name != "xlsxwriter_s"}
    assert "xlsx_vs_xlsxwriter" not in exports.compute_ratios(exports.compute_figures(ExportBenchPlan(), samples))


def test_export_benchmark_omits_file_ratios_without_rclone_with_reason() -> None:
    samples = {name: values for name, values in SAMPLES.items() if name not in ("files_s", "obstore_s", "reused_s")}
    told = exports.build_report(ExportBenchPlan(), samples, {"server_version": "18"}, load_settings(), True)
    assert "files_vs_obstore" not in told["ratios"]
    assert "reused_per_s" not in told["figures"]
    assert told["settings"]["files_vs_obstore"] == "not measured: rclone is not installed"


def test_export_benchmark_full_plan_has_documented_size() -> None:
    assert FULL_EXPORT_PLAN.users == 10_000_000


def test_export_benchmark_workbooks_of_both_writers_have_same_cells(tmp_path: Path) -> None:
    types = (("id", "uuid"), ("active", "boolean"), ("at", "timestamp"))
    form = OutputFileSpec(FileFormat.XLSX, tuple(OutputColumn(name, type_) for name, type_ in types))  # type: ignore[arg-type]
    whole, some, made = tmp_path / "whole", tmp_path / "some", tmp_path / "made.xlsx"
    whole.write_text("id,active,at\n" + "007,true,2024-01-01 12:00:00+00\n" * 5)
    workbooks.copy_first_rows(whole, some, 3)
    found = []
    for make in (workbooks.write_with_tidemill, workbooks.write_with_xlsxwriter):
        make(form, some, made)
        found.append(list(openpyxl.load_workbook(made).worksheets[0].iter_rows(values_only=True)))
    assert found[0] == found[1]
    assert len(found[0]) == 4


@pytest.mark.parametrize(("end", "is_whole"), [(b"0\r\n\r\n", True), (b"", False)])
def test_export_benchmark_rejects_truncated_stream_as_sample(end: bytes, is_whole: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na\n1\r\n" + end)

        thread = threading.Thread(target=answer)
        thread.start()
        if is_whole:
            assert drain_stream(server.getsockname(), "/", "key") > 0
        else:
            with pytest.raises(TidemillError, match="incomplete"):
                drain_stream(server.getsockname(), "/", "key")
        thread.join(30)


async def test_export_benchmark_measures_all_targets_and_cleans_up(
    db: Database, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", tidemill_database)
    monkeypatch.setenv("TIDEMILL_HOME", str(tmp_path))
    result = await asyncio.to_thread(run_benchmark, ExportBenchPlan(users=2_000, book_rows=1_000, inputs=20, rounds=1))
    assert results.EXPORT_MINIMUMS.keys() <= result["ratios"].keys() | result["figures"].keys()
    assert all(value > 0 for value in result["ratios"].values())
    assert result["figures"]["rss_mb"] > 10
    assert tidemill_database not in json.dumps(result)
    for table in ("job", "batch", "item", "outcome", "ingest", "job_tally", "api_key", "artifact", "delivery"):
        assert await rows(db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert await rows(db, "SELECT name FROM tidemill.app_user") == [("local",)]
    assert await rows(db, "SELECT to_regnamespace('tidemill_bench')") == [(None,)]
    assert os.listdir(tmp_path) == []  # noqa: PTH208  an async test must not block on paths
