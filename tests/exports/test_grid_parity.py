"""Every export format has the same cells as the result grid, also for hostile values."""

from typing import Any
from uuid import UUID

import pytest

from support import add_rows, rows
from support.result_exports import export
from support.result_values import HOSTILE, LONG, as_csv, read_csv, read_ndjson, read_xlsx
from tidemill import Done, Fail, Item, Mill, NotFound, Skip
from tidemill.core.result_grid import GridCell, build_row_cells, format_cell
from tidemill.jobs import queries
from tidemill.jobs.queries import load_grid_cells_of_items
from tidemill.store.database import Database
from tidemill.store.jsonb import encode_json
from tidemill.testing import drain

XLSX_MAX = 32_767
GRID_COLUMNS = {"columns": ["result.*", "_row", "_status", "_error_code", "_error"]}


async def shown(db: Database, job_id: UUID) -> tuple[list[str], list[list[GridCell]]]:
    """Return the header and the cells of the grid, read page by page; load items with truncated results one by one."""
    lines: list[list[GridCell]] = []
    after: object = None
    while after is not None or not lines:
        page = await queries.list_items(db, job_id, limit=20, after=after)
        columns, found = await load_grid_cells_of_items(db, job_id, page.items)
        for item, line in zip(page.items, found, strict=True):
            whole = await queries.get_item(db, job_id, item["seq"]) if item["result_cut"] else None
            lines.append(line if whole is None else build_row_cells(columns, whole))
        after = page.after
    return list(columns.header), lines


@pytest.fixture
async def job_id(mill: Mill, db: Database) -> UUID:
    """A job with each hostile value alone and together with the others, and with each final status."""

    @mill.handler("hostile", max_attempts=1, max_attempts_not_found=1)
    async def say(item: Item) -> Any:
        match item.input:
            case {"fail": reason}:
                raise Fail(reason, code="mine, and odd")
            case {"skip": reason}:
                return Skip(reason)
            case {"gone": reason}:
                return NotFound(reason)
            case {"alone": name}:
                return {name: HOSTILE[name]}
            case {"bare": name}:
                return HOSTILE[name]
            case "nothing":
                return Done()
        return HOSTILE

    inputs: list[Any] = ["all", "nothing", {"fail": '=boom\n"now"'}, {"skip": ""}, {"gone": "\x07 _x0007_"}]
    inputs += [{"alone": name} for name in HOSTILE] + [{"bare": name} for name in HOSTILE]
    job_id = await mill.submit_async("hostile", inputs)
    await drain(mill, db=db)
    return job_id


async def test_csv_export_matches_grid(job_id: UUID, mill: Mill, db: Database) -> None:
    header, lines = await shown(db, job_id)
    written = read_csv(await export(db, mill, job_id, "csv", **GRID_COLUMNS))
    assert written[0] == header
    assert written[1:] == [as_csv(line) for line in lines]
    assert len(lines) == 5 + 2 * len(HOSTILE)


async def test_xlsx_export_matches_grid_and_counts_truncated_cells(job_id: UUID, mill: Mill, db: Database) -> None:
    header, lines = await shown(db, job_id)
    (sheet,) = read_xlsx(await export(db, mill, job_id, "xlsx", **GRID_COLUMNS))
    cut = sum(isinstance(each, str) and len(each) > XLSX_MAX for line in lines for each in line)
    fitting = [[each[:XLSX_MAX] if isinstance(each, str) else each for each in line] for line in lines]
    assert sheet[0] == header
    for line, expected in zip(sheet[1:], fitting, strict=True):
        assert [(type(each), each) for each in line] == [(type(each), each) for each in expected]
    [(result,)] = await rows(db, "SELECT result FROM tidemill.outcome WHERE result->>'format' = 'xlsx'")
    assert result["cut_cells"] == cut == 3


async def test_ndjson_export_matches_grid_and_keeps_original_values(job_id: UUID, mill: Mill, db: Database) -> None:
    header, lines = await shown(db, job_id)
    written = read_ndjson(await export(db, mill, job_id, "ndjson", **GRID_COLUMNS))
    assert all(list(each) == header for each in written)
    assert [[format_cell(value) for value in each.values()] for each in written] == lines
    assert float(written[0].pop("huge")) == HOSTILE["huge"]  # jsonb writes all its digits
    assert all(written[0][name] == value for name, value in HOSTILE.items() if name != "huge")


async def test_grid_columns_follow_order_of_first_appearance(job_id: UUID, mill: Mill, db: Database) -> None:
    header, _ = await shown(db, job_id)
    assert header == [*HOSTILE, "result", "b", "a", "_row", "_status", "_error_code", "_error"]


async def test_csv_export_does_not_truncate_long_text(job_id: UUID, mill: Mill, db: Database) -> None:
    written = read_csv(await export(db, mill, job_id, "csv"))
    assert written[1][written[0].index("long")] == LONG


async def test_job_without_results_shows_inputs_in_grid_and_export(mill: Mill, db: Database) -> None:
    inputs = [HOSTILE | {"long": "not so long"}, {"zeros": "007", "unexpected": 1}, [1], None, "text"]
    job_id = await mill_less_job(db, inputs)
    header, lines = await shown(db, job_id)
    assert header == [*HOSTILE, "_row", "_status", "_error_code", "_error"]
    written = read_csv(await export(db, mill, job_id, "csv"))
    assert written[0] == [*HOSTILE, "unexpected", "input", "_row", "_status", "_error_code", "_error", "_attempts"]
    shown_columns = [written[0].index(name) for name in header]
    assert [[line[n] for n in shown_columns] for line in written[1:]] == [as_csv(line) for line in lines]
    assert written[2][header.index("zeros")] == "007"
    assert [line[len(HOSTILE) : len(HOSTILE) + 2] for line in written[2:]] == [
        ["1", ""],
        ["", "[1]"],
        ["", ""],
        ["", "text"],
    ]


async def mill_less_job(db: Database, inputs: list[Any]) -> UUID:
    """Submit a job of a kind without a handler."""
    return await add_rows(db, [encode_json(each) for each in inputs], "nobodys")


async def test_fixed_row_shows_latest_fix_in_grid_and_export(mill: Mill, db: Database) -> None:
    job_id = await mill_less_job(db, [{"sku": "old"}, {"sku": "kept"}])
    first = read_csv(await export(db, mill, job_id, "csv"))
    for rev, sku in enumerate(("newer", "newest"), 1):
        fix = "INSERT INTO tidemill.item_fix (job_id, seq, rev, input, by) VALUES (%s, 0, %s, %s, 0)"
        await rows(db, fix, job_id, rev, encode_json({"sku": sku}).decode())
    _, lines = await shown(db, job_id)
    second = read_csv(await export(db, mill, job_id, "csv"))
    assert [line[0] for line in first[1:]] == ["old", "kept"]
    assert [line[0] for line in second[1:]] == [line[0] for line in lines] == ["newest", "kept"]


async def test_undecodable_input_is_shown_as_raw_text_and_can_be_exported(mill: Mill, db: Database) -> None:
    job_id = await add_rows(db, [b'{"a": "\\ud800"}', b'{"a": "\\u0000"}'], "nobodys")
    _, lines = await shown(db, job_id)
    for format_ in ("csv", "ndjson", "xlsx"):
        path = await export(db, mill, job_id, format_)
        assert path.stat().st_size > 0
    assert [line[0] for line in lines] == ['{"a": "\\ud800"}', None]
