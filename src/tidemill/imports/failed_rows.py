"""Lists the failed rows of an import in pages, with all errors of each row."""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, NotRequired, TypedDict, cast

from tidemill.core.errors import Conflict
from tidemill.core.input_source import InputDefect
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import Page
from tidemill.core.outcome import ErrorDetails
from tidemill.imports import import_records
from tidemill.imports.column_mapping import ERROR_FILE_COLUMNS
from tidemill.imports.import_plan import ImportParams
from tidemill.imports.import_records import FailedRow
from tidemill.imports.validation.row_errors import RowErrors
from tidemill.store.database import Database
from tidemill.tables.values.column_texts import REDACTED_VALUE

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
    column: NotRequired[str]  # of the imported file; only in error files
    byte_offset: NotRequired[int]  # set for bytes that are invalid in the file's encoding


class RowWithErrors(TypedDict):
    row: int
    line: int
    errors: list[RowErrorView]
    input: Any


class RejectedValue(TypedDict):
    """A text that is not a valid value of its field, and the number of rows with it."""

    value: str
    rows: int
    reason: str


REJECTED_VALUES_MAX = 50  # of each field


def count_rejected_values(errors: RowErrors) -> dict[str, list[RejectedValue]]:
    """Return the most frequent invalid values of each field, without long and sensitive ones."""
    counts: dict[str, dict[str, RejectedValue]] = {}
    for group in errors.groups:
        for text in group.values_by_row.values():
            if group.field is not None and text and text.strip() and not text.endswith(REDACTED_VALUE):
                new: RejectedValue = {"value": text, "rows": 0, "reason": group.reason}
                counts.setdefault(group.field, {}).setdefault(text, new)["rows"] += 1
    return {
        name: sorted(values.values(), key=lambda one: -one["rows"])[:REJECTED_VALUES_MAX]
        for name, values in counts.items()
    }


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
        str(error["reason"])
        if error["field"] is None
        else f"{error.get('column') or error['field']}: {error['reason']}"
        for error in errors
    )


def join_error_codes(errors: Iterable[RowErrorView]) -> str:
    """Return the codes of a row's errors, in the order of their reasons, as the text of one cell."""
    return "; ".join(str(error["code"]) for error in errors)


def convert_input_to_record(columns: Sequence[str], value: Any) -> JsonObject:
    """Return a row by column. The text of an unparsed record is in the first column."""
    return value if isinstance(value, dict) else {columns[0] if columns else UNPARSED_COLUMN: value}


FAILED_ROWS_PAGE_SIZE = 500


async def list_rows_with_errors(
    db: Database,
    job: Job,
    *,
    limit: int,
    after: object = None,
    codes: Sequence[str] | None = None,
    with_dismissed: bool = True,
) -> Page[RowWithErrors]:
    """Return a page of failed rows in file order, each with all of its errors.

    ``codes``: only rows that have an error with one of these codes. Conflict if the job was purged.
    """
    check_job_not_purged(job)
    page = await db.read(
        import_records.list_failed_rows,
        job.id,
        limit=limit,
        after=after,
        codes=codes,
        with_dismissed=with_dismissed,
    )
    return Page([_build_row_with_errors(row) for row in page.items], page.after)


def get_planned_columns(job: Job) -> list[str]:
    """Return the columns that the first records of the file have, without those that an error file adds."""
    plan = ImportParams.from_json(job.params).plan
    return [name for name in (plan.columns if plan else ()) if name not in ERROR_FILE_COLUMNS]


async def read_columns_of_failed_rows(db: Database, job: Job) -> list[str]:
    """Return the planned columns and the further fields of failed rows, which NDJSON and JSON files can have."""
    check_job_not_purged(job)
    columns = get_planned_columns(job)
    others = [
        name for name in await db.read(import_records.list_failed_row_fields, job.id) if name not in ERROR_FILE_COLUMNS
    ]
    return [*columns, *(name for name in others if name not in columns)] or [UNPARSED_COLUMN]


async def iterate_failed_row_pages(db: Database, job: Job) -> AsyncIterator[Sequence[FailedRow]]:
    """Yield pages of failed rows. Between pages it holds no connection, so a slow client blocks no other."""
    check_job_not_purged(job)
    after: object = None
    while True:
        page = await db.read(import_records.list_failed_rows, job.id, limit=FAILED_ROWS_PAGE_SIZE, after=after)
        if page.items:
            yield page.items
        after = page.after
        if after is None:
            return


def _build_row_with_errors(found: FailedRow) -> RowWithErrors:
    return {"row": found.row, "line": found.line, "errors": build_errors_of_failed_row(found), "input": found.input}


def build_errors_of_failed_row(found: FailedRow) -> list[RowErrorView]:
    return build_row_error_views(found.error, found.row, found.line)


def check_job_not_purged(job: Job) -> None:
    if job.purged_at is not None:
        raise Conflict(f"Job {job.key} was purged, and its rows were deleted")
