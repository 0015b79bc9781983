"""The failed rows of an import: in pages, and as files that a user can fix and send back."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NotRequired, TypedDict, cast

import msgspec

from tidemill.core.errors import Conflict
from tidemill.core.input_source import InputDefect
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import Page
from tidemill.core.outcome import ErrorDetails
from tidemill.core.result_grid import GridCell, format_cell
from tidemill.files.writers.row_writers import format_csv_line
from tidemill.imports import import_records
from tidemill.imports.column_mapping import ERRORS_COLUMN, ROW_NUMBER_COLUMN
from tidemill.imports.import_plan import ImportParams
from tidemill.imports.import_records import FailedRow
from tidemill.store.database import Database

UNPARSED_COLUMN = "input"  # the column of records that could not be parsed, where no other is known


class RowErrorView(TypedDict):
    """One error of a row, as the API and the files of failed rows show it."""

    row: int
    line: int
    field: str | None
    value: str | None
    code: str | None
    reason: str | None
    retryable: bool
    byte_offset: NotRequired[int]  # of bytes that are not in the file's encoding


class RowWithErrors(TypedDict):
    row: int
    line: int
    errors: list[RowErrorView]
    input: Any


def build_row_error_views(error: ErrorDetails | InputDefect, row: int, line: int) -> list[RowErrorView]:
    """All errors of a row."""
    stored = cast("ErrorDetails", error)  # a defect has fewer fields
    retryable = stored.get("retryable", False)
    return [_build_error_view(one, row, line, retryable=retryable) for one in stored.get("errors") or [stored]]


def _build_error_view(error: ErrorDetails, row: int, line: int, *, retryable: bool) -> RowErrorView:
    view: RowErrorView = {
        "row": row,
        "line": line,
        "field": error.get("field"),
        "value": error.get("value"),
        "code": error.get("code"),
        "reason": error.get("reason"),
        "retryable": retryable,
    }
    if "byte_offset" in error:
        view["byte_offset"] = error["byte_offset"]
    return view


def join_error_reasons(errors: Iterable[RowErrorView]) -> str:
    """The errors of a row as the text of one cell."""
    return "; ".join(
        str(error["reason"]) if error["field"] is None else f"{error['field']}: {error['reason']}" for error in errors
    )


def to_record(columns: Sequence[str], value: Any) -> JsonObject:
    """A row by its columns; a record that could not be parsed has its text in the first of them."""
    return value if isinstance(value, dict) else {columns[0] if columns else UNPARSED_COLUMN: value}


def to_failed_row_cells(columns: Sequence[str], value: Any, row: int, errors: Iterable[RowErrorView]) -> list[GridCell]:
    """A row of the file of failures: the columns of the original, then its number and what is wrong."""
    record = to_record(columns, value)
    return [*(format_cell(record.get(name)) for name in columns), row, join_error_reasons(errors)]


FAILED_ROWS_PAGE_SIZE = 500


async def list_rows_with_errors(
    db: Database, job: Job, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[RowWithErrors]:
    """Failed rows in their own order, each with all of its errors; with ``codes``, those that failed first of these."""
    _check_not_purged(job)
    page = await db.read(import_records.list_failed_rows, job.id, limit=limit, after=after, codes=codes)
    return Page([_build_failure_view(found) for found in page.items], page.after)


async def stream_failed_rows_csv(db: Database, job: Job) -> AsyncIterator[bytes]:
    """The failed rows in the columns of their file, and two more: a page at a time, whatever their number."""
    columns = await load_file_columns(db, job)
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
    """The columns of a job's file, as its first records show them, without Tidemill's own columns."""
    plan = ImportParams.from_json(job.params).plan
    return [name for name in (plan.columns if plan else ()) if name not in (ROW_NUMBER_COLUMN, ERRORS_COLUMN)]


async def load_file_columns(db: Database, job: Job) -> list[str]:
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
    """Holds no connection between two pages, so that a slow reader does not block others."""
    _check_not_purged(job)
    after: object = None
    while True:
        page = await db.read(import_records.list_failed_rows, job.id, limit=FAILED_ROWS_PAGE_SIZE, after=after)
        if page.items:
            yield page.items
        after = page.after
        if after is None:
            return


def _build_failure_view(found: FailedRow) -> RowWithErrors:
    return {"row": found.row, "line": found.line, "errors": _build_row_errors(found), "input": found.input}


def _build_row_errors(found: FailedRow) -> list[RowErrorView]:
    return build_row_error_views(found.error, found.row, found.line)


def _check_not_purged(job: Job) -> None:
    if job.purged_at is not None:
        raise Conflict(f"job {job.key} was purged: its rows are gone")
