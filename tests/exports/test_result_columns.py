"""Result files have the columns of the submitted file, then those of the results, in every format."""

import asyncio
import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import openpyxl
import pytest
from pyarrow import parquet

from support import assert_sound, rows
from support.result_exports import export
from support.result_values import read_csv, read_ndjson, read_xlsx
from tidemill import Fail, Item, Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileFormat
from tidemill.jobs.submission import Submission, submit_local_file
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing import drain

NAMES = ["sku", "Preis", "note", "empty"]
ROWS = [["A-1", "1,50", "", ""], ["A-2", "x", "=1+1", ""], ["007", "2,00", 'say "hi"', ""]]
ADDED = ["price", "result.sku", "_row", "_status", "_error_code", "_error", "_attempts"]
STATES: list[list[Any]] = [
    [1.5, "a-1", 1, "done", None, None, 1],
    [None, None, 2, "failed", "price", "not a number", 1],
    [2, "007", 3, "done", None, None, 1],
]


@pytest.fixture
def pricing(mill: Mill) -> Mill:
    """A mill whose kind parses a price. One field of the result has the name of an input column."""

    @mill.handler("price", max_attempts=2, backoff=0.01)
    async def price(item: Item) -> dict[str, Any]:
        try:
            value = float(item.input["Preis"].replace(",", "."))
        except ValueError:
            raise Fail("not a number", code="price") from None
        return {"price": int(value) if value.is_integer() else value, "sku": item.input["sku"].lower()}

    return mill


def write_csv(path: Path) -> Path:
    text = io.StringIO()
    csv.writer(text, delimiter=";").writerows([NAMES, *ROWS])
    path.write_text(text.getvalue())
    return path


def write_xlsx(path: Path) -> Path:
    book = openpyxl.Workbook()
    sheet = book.active
    assert sheet is not None
    for line in [NAMES, *ROWS]:
        sheet.append([None if cell == "" else f"'{cell}" if cell.startswith("=") else cell for cell in line])
    book.save(path)
    return path


def write_ndjson(path: Path) -> Path:
    path.write_text("".join(json.dumps(dict(zip(NAMES, line, strict=True))) + "\n" for line in ROWS))
    return path


def make_folder(path: Path) -> Path:
    path.mkdir()
    return path


async def run_file(db: Database, mill: Mill, path: Path, kind: str = "price") -> UUID:
    await db.run(workers.register_kinds, mill.registry.create_all())
    job = await submit_local_file(make_runtime(db, mill.settings, mill.registry), Submission(kind), path)
    await drain(mill, db=db)
    return job.id


def read_result_file(path: Path, format_: str) -> list[list[Any]]:
    """Return the header and the rows of a result file; a missing value and empty text are None."""
    match format_:
        case "csv":
            lines: list[list[Any]] = list(read_csv(path))
        case "xlsx":
            lines = read_xlsx(path)[0]
        case "parquet":
            table = parquet.read_table(path)
            lines = [table.column_names, *([*row.values()] for row in table.to_pylist())]
        case _:
            found = read_ndjson(path) if format_ == "ndjson" else json.loads(path.read_text())
            lines = [[*found[0]], *([*each.values()] for each in found)]
    return [[None if cell == "" else cell for cell in line] for line in lines]


@pytest.mark.parametrize("format_", list(FileFormat))
@pytest.mark.parametrize("write", [write_csv, write_ndjson])
async def test_result_file_has_columns_and_order_of_the_submitted_file(
    db: Database, pricing: Mill, tmp_path: Path, write: Callable[[Path], Path], format_: FileFormat
) -> None:
    job_id = await run_file(db, pricing, write(tmp_path / f"prices.{write.__name__.removeprefix('write_')}"))
    header, *lines = read_result_file(await export(db, pricing, job_id, format_), format_)
    assert header == NAMES + ADDED
    expected = [given + state for given, state in zip(ROWS, STATES, strict=True)]
    expected = [[None if cell == "" else cell for cell in line] for line in expected]
    if format_ is FileFormat.CSV:
        expected = [[None if cell is None else str(cell) for cell in line] for line in expected]
    assert lines == expected
    await assert_sound(db)


async def test_result_file_of_workbook_has_its_columns_and_order(db: Database, pricing: Mill, tmp_path: Path) -> None:
    job_id = await run_file(db, pricing, write_xlsx(tmp_path / "prices.xlsx"))
    header, *lines = read_result_file(await export(db, pricing, job_id, "xlsx"), "xlsx")
    assert header[: len(NAMES)] == NAMES
    assert [line[0] for line in lines] == ["A-1", "A-2", "007"]
    assert [line[-4:] for line in lines] == [state[-4:] for state in STATES]


async def test_columns_and_statuses_are_chosen_in_order(db: Database, pricing: Mill, tmp_path: Path) -> None:
    job_id = await run_file(db, pricing, write_csv(tmp_path / "prices.csv"))
    chosen: dict[str, Any] = {"columns": ["_status", "result.price", "sku", "result.sku"], "statuses": ["done"]}
    found = read_csv(await export(db, pricing, job_id, **chosen))
    assert found == [
        ["_status", "price", "sku", "result.sku"],
        ["done", "1.5", "A-1", "a-1"],
        ["done", "2", "007", "007"],
    ]
    only_results = read_csv(await export(db, pricing, job_id, columns=["result.*"]))
    assert only_results[0] == ["price", "result.sku"]
    compressed = await export(db, pricing, job_id, columns=["sku"], compression="gzip")
    assert compressed.name.endswith(".csv.gz")
    assert gzip.decompress(compressed.read_bytes()).splitlines()[1:] == [b"A-1", b"A-2", b"007"]


async def test_malformed_row_keeps_its_text_in_the_first_column(db: Database, pricing: Mill, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("sku,Preis\nA-1,1\nbroken\nA-3,3\n")
    job_id = await run_file(db, pricing, path)
    lines = read_csv(await export(db, pricing, job_id))
    assert [line[0] for line in lines] == ["sku", "A-1", "broken", "A-3"]
    assert lines[2][lines[0].index("_status")] == "failed"


async def test_column_that_only_a_late_row_has_is_in_the_file(db: Database, mill: Mill) -> None:
    mill.handler("echo")(lambda item: {"seen": item.seq})
    inputs: list[dict[str, Any]] = [{"a": n} for n in range(300)] + [{"late": "x", "a": 0}]
    job_id = await mill.submit_async("echo", inputs)
    await drain(mill, db=db)
    lines = read_csv(await export(db, mill, job_id))
    assert lines[0][:3] == ["a", "late", "seen"]
    assert lines[-1][:3] == ["0", "x", "300"]
    chosen = read_csv(await export(db, mill, job_id, columns=["a", "input.late"]))
    assert chosen[-1] == ["0", "x"]
    with pytest.raises(InvalidInput, match='use "input\\.late" or "result\\.late"'):
        await export(db, mill, job_id, columns=["late"])


async def test_nested_fields_have_columns_when_flattened_or_chosen(db: Database, mill: Mill) -> None:
    results: list[Any] = [{"price": {"amount": 1, "tax": {"rate": 7}}, "id": 1}, {"price": {"currency": "EUR"}}]
    mill.handler("offer")(lambda item: results[item.seq])
    job_id = await mill.submit_async("offer", [{"at": {"city": "Ulm"}}, {"at": None}])
    await drain(mill, db=db)
    flat = read_csv(await export(db, mill, job_id, flatten=True))
    assert [line[:6] for line in flat] == [
        ["at.city", "price.tax.rate", "price.amount", "price.currency", "id", "_row"],
        ["Ulm", "7", "1", "", "1", "1"],
        ["", "", "", "EUR", "", "2"],
    ]
    chosen = read_csv(await export(db, mill, job_id, columns=["price.amount", "result.price.currency", "at.city"]))
    assert chosen == [["price.amount", "price.currency", "at.city"], ["1", "", "Ulm"], ["", "EUR", ""]]


async def test_mill_writes_result_file_without_a_worker(db: Database, pricing: Mill, tmp_path: Path) -> None:
    job_id = await run_file(db, pricing, write_csv(tmp_path / "prices.csv"))
    path = (await asyncio.to_thread(make_folder, tmp_path / "out")) / "out.parquet"
    assert await pricing.export_results_async(job_id, path, columns=["sku", "price"], statuses=["done"]) == 2
    assert parquet.read_table(path).to_pylist() == [{"sku": "A-1", "price": 1.5}, {"sku": "007", "price": 2.0}]
    with pytest.raises(InvalidInput, match="Unknown column"):
        await pricing.export_results_async(job_id, path, columns=["skuu"])
    assert len(await asyncio.to_thread(path.read_bytes)) > 0, "a failed export keeps the earlier file"
    with pytest.raises(InvalidInput, match="Cannot detect the format"):
        await pricing.export_results_async(job_id, tmp_path / "out.txt")
    assert [each.name for each in await asyncio.to_thread(lambda: [*path.parent.iterdir()])] == ["out.parquet"]


async def test_route_lists_columns_and_exports_chosen_ones(api: Any, ada: httpx2.AsyncClient, toy: Mill) -> None:
    inputs = [{"sku": "A,1", "fail": "x"}, {"a,b": 2, "sku": "A2"}]
    job = (await ada.post("/v1/jobs", json={"kind": "echo", "inputs": inputs})).json()["key"]
    await drain(toy, db=api.db)
    listed = (await ada.get(f"/v1/jobs/{job}/export/columns")).json()
    assert [each["header"] for each in listed] == [
        *("sku", "fail", "a,b", "result.a,b", "result.sku"),
        *("_row", "_status", "_error_code", "_error", "_attempts"),
    ]
    by_query = await ada.post(f"/v1/jobs/{job}/export", params={"format": "ndjson", "columns": "sku,_status"})
    by_body = await ada.post(f"/v1/jobs/{job}/export?format=ndjson", json={"columns": ["a,b", "_row"]})
    both = await ada.post(f"/v1/jobs/{job}/export?columns=sku", json={"columns": ["sku"]})
    unknown = await ada.post(f"/v1/jobs/{job}/export?columns=skuu")
    assert (both.status_code, unknown.status_code) == (422, 422)
    assert 'Unknown column "skuu"; did you mean "sku"' in unknown.json()["detail"]
    await drain(toy, db=api.db)
    files = []
    for answer in (by_query, by_body):
        assert answer.status_code == 202, answer.text
        file = await ada.get(f"{answer.headers['location']}/download")
        files.append([json.loads(line) for line in file.text.splitlines()])
    assert files == [
        [{"sku": "A,1", "_status": "failed"}, {"sku": "A2", "_status": "done"}],
        [{"a,b": None, "_row": 1}, {"a,b": 2, "_row": 2}],
    ]
    shown = (await ada.get(by_query.headers["location"])).json()
    assert (shown["fields"], shown["format"], shown["record_count"]) == (["sku", "_status"], "ndjson", 2)
    bob = await api.user("bob")
    assert (await bob.get(f"/v1/jobs/{job}/export/columns")).status_code == 404


async def test_results_command_writes_chosen_columns(
    tidemill: Any, cli_mill: Mill, db: Database, tmp_path: Path
) -> None:
    job_id = await cli_mill.submit_async("test", [{"sku": "A-1"}, {"sku": "A-2"}])
    await drain(cli_mill, db=db)
    [(key,)] = await rows(db, "SELECT key FROM tidemill.job WHERE id = %s", job_id)
    path = tmp_path / "out.csv"
    said = tidemill("results", key, "-o", str(path), "--columns", "_row,sku,_status")
    assert "Wrote 2 rows" in said.err + said.out
    assert path.read_text().splitlines() == ["_row,sku,_status", "1,A-1,done", "2,A-2,done"]
    assert "Unknown column" in tidemill.refuses("results", key, "-o", str(path), "--columns", "nothing_like_it")
    assert "Cannot detect the format" in tidemill.refuses("results", key, "-o", str(tmp_path / "out"))
    assert len(path.read_text().splitlines()) == 3
