"""Failed rows as people see them: every error in the one shape, and the row in the columns of its file.

The failed rows of an import: in pages, and as files that can be mended and sent back.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from tidemill.core.errors import Conflict
from tidemill.core.job import Job
from tidemill.core.list_pages import Page
from tidemill.core.result_grid import GridCell, format_cell
from tidemill.files.writers.row_writers import format_csv_line
from tidemill.imports import import_records
from tidemill.imports.import_records import FailedRow
from tidemill.store.database import Database

ROW_NUMBER_COLUMN, ERRORS_COLUMN = "_row", "_errors"
UNPARSED_COLUMN = "input"  # the column of records that could not be parsed, where no other is known
_ERROR_KEYS = ("field", "value", "code", "reason")


def list_row_errors(error: Mapping[str, Any], row: int, line: int) -> list[dict[str, Any]]:
    """All that is wrong with a row, each in the shape that errors have everywhere."""
    retryable = bool(error.get("retryable", False))
    told = error.get("errors") or [error]
    return [{"row": row, "line": line} | _select_error_keys(one) | {"retryable": retryable} for one in told]


def _select_error_keys(one: Mapping[str, Any]) -> dict[str, Any]:
    """An offset is told where there is one: of bytes that are not in the file's encoding."""
    where = {"byte_offset": one["byte_offset"]} if "byte_offset" in one else {}
    return where | {name: one.get(name) for name in _ERROR_KEYS}


def join_error_reasons(errors: Iterable[Mapping[str, Any]]) -> str:
    """The same in a cell, for somebody who mends the row."""
    return "; ".join(
        str(error["reason"]) if error.get("field") is None else f"{error['field']}: {error['reason']}"
        for error in errors
    )


def to_record(columns: Sequence[str], value: Any) -> dict[str, Any]:
    """A row by its columns; a record that could not be parsed has its text in the first of them."""
    return value if isinstance(value, dict) else {columns[0] if columns else UNPARSED_COLUMN: value}


def to_failed_row_cells(
    columns: Sequence[str], value: Any, row: int, errors: Iterable[Mapping[str, Any]]
) -> list[GridCell]:
    """A row of the file of failures: the columns of the original, then its number and what is wrong."""
    record = to_record(columns, value)
    return [*(format_cell(record.get(name)) for name in columns), row, join_error_reasons(errors)]


FAILED_ROWS_PAGE_SIZE = 500


async def list_import_errors(
    db: Database, job: Job, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[dict[str, Any]]:
    """Failed rows in their own order, each with all of its errors; with ``codes``, those that failed first of these."""
    _check_not_purged(job)
    page = await db.read(import_records.list_failed_rows, job.id, limit=limit, after=after, codes=codes)
    return Page([_build_failure_view(found) for found in page.items], page.after)


async def stream_failed_rows_csv(db: Database, job: Job) -> AsyncIterator[bytes]:
    """The failed rows in the columns of their file, and two more: a page at a time, whatever their number."""
    columns = await get_file_columns(db, job)
    yield format_csv_line([*columns, ROW_NUMBER_COLUMN, ERRORS_COLUMN])
    async for found in _iterate_failure_pages(db, job):
        yield b"".join(
            format_csv_line(to_failed_row_cells(columns, one.input, one.row, _build_row_errors(one))) for one in found
        )


async def stream_failed_rows_ndjson(db: Database, job: Job) -> AsyncIterator[bytes]:
    """The same, an object a line; errors are lists of objects there."""
    columns = get_planned_columns(job)
    async for found in _iterate_failure_pages(db, job):
        lines = [
            to_record(columns, one.input) | {ROW_NUMBER_COLUMN: one.row, ERRORS_COLUMN: _build_row_errors(one)}
            for one in found
        ]
        yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def get_planned_columns(job: Job) -> list[str]:
    """The columns of a job's file, as far as its beginning told; none of ours."""
    plan = job.params.get("plan") or {}
    return [name for name in plan.get("columns") or () if name not in (ROW_NUMBER_COLUMN, ERRORS_COLUMN)]


async def get_file_columns(db: Database, job: Job) -> list[str]:
    """The same, with what later rows of a file without a header have called their fields."""
    _check_not_purged(job)
    columns = get_planned_columns(job)
    others = [
        name
        for name in await db.read(import_records.list_failed_row_fields, job.id)
        if name not in (ROW_NUMBER_COLUMN, ERRORS_COLUMN)
    ]
    return [*columns, *(name for name in others if name not in columns)] or [UNPARSED_COLUMN]


async def _iterate_failure_pages(db: Database, job: Job) -> AsyncIterator[Sequence[FailedRow]]:
    """No connection is held between two pages: whoever reads slowly keeps nobody waiting."""
    _check_not_purged(job)
    after: object = None
    while True:
        page = await db.read(import_records.list_failed_rows, job.id, limit=FAILED_ROWS_PAGE_SIZE, after=after)
        if page.items:
            yield page.items
        after = page.after
        if after is None:
            return


def _build_failure_view(found: FailedRow) -> dict[str, Any]:
    return {"row": found.row, "line": found.line, "errors": _build_row_errors(found), "input": found.input}


def _build_row_errors(found: FailedRow) -> list[dict[str, Any]]:
    return list_row_errors(found.error, found.row, found.line)


def _check_not_purged(job: Job) -> None:
    if job.purged_at is not None:
        raise Conflict(f"job {job.key} was purged: its rows are gone")
