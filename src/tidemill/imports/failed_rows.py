"""Lists the failed rows of an import in pages, and streams them as files that a user can fix and send back."""

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

UNPARSED_COLUMN = "input"  # the column of unparsed records if the file has no known columns


class RowErrorView(TypedDict):
    """One error of a row, as the API and the files of failed rows show it."""

    row: int
    line: int
    field: str | None
    value: str | None
    code: str | None
    reason: str | None
    retryable: bool
    byte_offset: NotRequired[int]  # set for bytes that are invalid in the file's encoding


class RowWithErrors(TypedDict):
    row: int
    line: int
    errors: list[RowErrorView]
    input: Any


def build_row_error_views(error: ErrorDetails | InputDefect, row: int, line: int) -> list[RowErrorView]:
    """Return all errors of a row."""
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
    """Return the errors of a row as the text of one cell."""
    return "; ".join(
        str(error["reason"]) if error["field"] is None else f"{error['field']}: {error['reason']}" for error in errors
    )


def to_record(columns: Sequence[str], value: Any) -> JsonObject:
    """Return a row by column. The text of an unparsed record is in the first column."""
    return value if isinstance(value, dict) else {columns[0] if columns else UNPARSED_COLUMN: value}


def to_failed_row_cells(columns: Sequence[str], value: Any, row: int, errors: Iterable[RowErrorView]) -> list[GridCell]:
    """Return a row of the file of failed rows: the original columns, the row number and the errors."""
    record = to_record(columns, value)
    return [*(format_cell(record.get(name)) for name in columns), row, join_error_reasons(errors)]


FAILED_ROWS_PAGE_SIZE = 500


async def list_rows_with_errors(
    db: Database, job: Job, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[RowWithErrors]:
    """Return a page of failed rows in file order, each with all of its errors.

    ``codes``: only rows whose first error has one of these codes. Conflict if the job was purged.
    """
    _check_not_purged(job)
    page = await db.read(import_records.list_failed_rows, job.id, limit=limit, after=after, codes=codes)
    return Page([_build_failure_view(row) for row in page.items], page.after)


async def stream_failed_rows_csv(db: Database, job: Job) -> AsyncIterator[bytes]:
    """Yield the failed rows as CSV, page by page: the columns of the file, then ``_row`` and ``_errors``."""
    columns = await load_failed_rows_columns(db, job)
    yield format_csv_line([*columns, ROW_NUMBER_COLUMN, ERRORS_COLUMN])
    async for page in _iterate_failure_pages(db, job):
        yield b"".join(
            format_csv_line(to_failed_row_cells(columns, one.input, one.row, _build_row_errors(one))) for one in page
        )


async def stream_failed_rows_ndjson(db: Database, job: Job) -> AsyncIterator[bytes]:
    """Yield the failed rows as NDJSON, page by page. ``_errors`` is a list of objects."""
    columns = get_planned_columns(job)
    async for page in _iterate_failure_pages(db, job):
        lines = [
            to_record(columns, one.input) | {ROW_NUMBER_COLUMN: one.row, ERRORS_COLUMN: _build_row_errors(one)}
            for one in page
        ]
        yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines)


def get_planned_columns(job: Job) -> list[str]:
    """Return the columns that the first records of the file have, without ``_row`` and ``_errors``."""
    plan = ImportParams.from_json(job.params).plan
    return [name for name in (plan.columns if plan else ()) if name not in (ROW_NUMBER_COLUMN, ERRORS_COLUMN)]


async def load_failed_rows_columns(db: Database, job: Job) -> list[str]:
    """Return the planned columns and the further fields of failed rows, which NDJSON and JSON files can have."""
    _check_not_purged(job)
    columns = get_planned_columns(job)
    others = [
        name
        for name in await db.read(import_records.list_failed_row_fields, job.id)
        if name not in (ROW_NUMBER_COLUMN, ERRORS_COLUMN)
    ]
    return [*columns, *(name for name in others if name not in columns)] or [UNPARSED_COLUMN]


async def _iterate_failure_pages(db: Database, job: Job) -> AsyncIterator[Sequence[FailedRow]]:
    """Yield pages of failed rows. Between pages it holds no connection, so a slow client blocks no other."""
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
        raise Conflict(f"Job {job.key} was purged, and its rows are deleted")
