"""Lists the failed rows of an import with all errors, in pages and as files that a user can fix and send back."""

import asyncio
import codecs
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NotRequired, TypedDict, cast

import msgspec

from tidemill.core.errors import Conflict
from tidemill.core.file_format import FORMAT_CONTENT_TYPES, FileFormat, FileLayout, escape_formula, unescape_formula
from tidemill.core.input_source import InputDefect
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import Page
from tidemill.core.outcome import ErrorDetails
from tidemill.core.result_grid import GridCell, format_cell
from tidemill.files.writers.copy_encoders import format_cells_of_row_as_xml, format_csv_line
from tidemill.files.writers.xlsx_sheets import WorkbookWriter
from tidemill.imports import import_records
from tidemill.imports.column_mapping import (
    ERROR_CODES_COLUMN,
    ERROR_FILE_COLUMNS,
    ERRORS_COLUMN,
    ROW_NUMBER_COLUMN,
)
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


@dataclass(frozen=True, slots=True)
class ErrorFile:
    """A file of failed rows as a stream. ``note`` says how it differs from the layout of the imported file."""

    chunks: AsyncIterator[bytes]
    content_type: str
    suffix: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class CsvStyle:
    """How a CSV file is written. The byte order mark is written before the first line."""

    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = '"'
    line_end: str = "\r\n"
    suffix: str = ".csv"
    byte_order_mark: bytes = b""

    @property
    def content_type(self) -> str:
        charset = self.encoding.replace("cp125", "windows-125")
        return f"text/csv; charset={charset.removesuffix('-le').removesuffix('-be')}"

    def encode_line(self, cells: Sequence[GridCell], added: Sequence[GridCell]) -> bytes:
        """Return a line. ``added`` cells are never imported, so a character that cannot be encoded becomes "?"."""
        marks = {"delimiter": self.delimiter, "quote": self.quote}
        if not self.quote:  # without quotes, a delimiter in a message would add a field
            added = [re.sub(rf"[{re.escape(self.delimiter)}\r\n]+", " ", str(cell)) for cell in added]
        line = format_csv_line(cells, **marks, line_end=self.delimiter).encode(self.encoding)
        return line + format_csv_line(added, **marks, line_end=self.line_end).encode(self.encoding, errors="replace")


_UNICODE_BYTE_ORDER_MARKS = {
    "utf-8": b"",
    "utf-8-sig": codecs.BOM_UTF8,
    "utf-16": codecs.BOM_UTF16_LE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "gb18030": b"",
}
_CODECS = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le"}  # their codecs would write the mark before every line


def make_csv_style(layout: FileLayout | None) -> CsvStyle:
    """Return the style of a CSV file with this layout; the default style for other formats."""
    if layout is None or layout.format not in ("csv", "tsv"):
        return CsvStyle()
    encoding = layout.encoding or "utf-8"
    return CsvStyle(
        encoding=_CODECS.get(encoding, encoding),
        delimiter=layout.delimiter or ("\t" if layout.format == "tsv" else ","),
        quote='"' if layout.quote is None else layout.quote,
        line_end=layout.line_end or "\r\n",
        suffix=f".{layout.format}",
        byte_order_mark=_UNICODE_BYTE_ORDER_MARKS.get(encoding, b""),
    )


def is_unicode_encoding(encoding: str | None) -> bool:
    """Whether an encoding has every character, and a spreadsheet can detect it."""
    return (encoding or "utf-8") in _UNICODE_BYTE_ORDER_MARKS


ERROR_FILE_FORMATS = ("csv", "ndjson", "xlsx")
ERRORS_SHEET_NAME = "Errors"


async def open_error_file(db: Database, job: Job, format_: str) -> ErrorFile:
    """Return the failed rows as a file: the columns of the imported file, then ``_row``, ``_errors``, ``_error_codes``.

    CSV has the encoding, delimiter, quotes and line ends of the imported file if that is CSV too. It is UTF-8 with a
    byte order mark instead if that encoding lacks a character. Text in CSV and workbooks that a spreadsheet could run
    as a formula has an apostrophe in front, which fixes and imports of the file remove. Conflict if the job was purged.
    """
    check_job_not_purged(job)
    if format_ == "ndjson":
        return ErrorFile(_stream_ndjson(db, job), FORMAT_CONTENT_TYPES[FileFormat.NDJSON], ".ndjson")
    rows = _ErrorFileRows(db, job, await read_columns_of_failed_rows(db, job))
    if format_ == "xlsx":
        return ErrorFile(rows.stream_xlsx(), FORMAT_CONTENT_TYPES[FileFormat.XLSX], ".xlsx")
    layout = await read_import_layout(db, job)
    style, note = make_csv_style(layout), None
    if layout is not None and not is_unicode_encoding(layout.encoding) and not await rows.can_encode(style.encoding):
        style = replace(style, encoding="utf-8", byte_order_mark=codecs.BOM_UTF8)
        note = f"The file is UTF-8 with a byte order mark, because its rows cannot be written as {layout.encoding}"
    return ErrorFile(rows.stream_csv(style), style.content_type, style.suffix, note)


async def read_import_layout(db: Database, job: Job) -> FileLayout | None:
    """Return the layout of the imported file; None if the file was never read."""
    if (layout := ImportParams.from_json(job.params).layout) is not None:
        return layout
    origin = (await db.read(import_records.find_import_origins, [job.id])).get(job.id)
    return origin.source.layout if origin and origin.source else None


class _ErrorFileRows:
    """Reads the failed rows of an import page by page, and writes them as CSV or as a workbook."""

    def __init__(self, db: Database, job: Job, columns: Sequence[str]) -> None:
        self._db = db
        self._job = job
        self._columns = columns
        plan = ImportParams.from_json(job.params).plan
        self._is_escaped = plan is not None and plan.spreadsheet_safe
        self._columns_by_field = _map_fields_to_columns(job)
        self._header = [escape_cell_if_formula(name) for name in columns]

    async def can_encode(self, encoding: str) -> bool:
        """Whether an encoding has all characters of the header and of the rows. It reads all failed rows."""
        try:
            "".join(self._columns).encode(encoding)
            if encoding.startswith("utf-32"):  # a spreadsheet does not detect it
                return False
            async for page in iterate_failed_row_pages(self._db, self._job):
                cells = (cell for one in page for cell in self._build_data_cells(one))
                "".join(cell for cell in cells if isinstance(cell, str)).encode(encoding)
        except UnicodeEncodeError:
            return False
        return True

    async def stream_csv(self, style: CsvStyle) -> AsyncIterator[bytes]:
        yield style.byte_order_mark + style.encode_line(self._header, ERROR_FILE_COLUMNS)
        async for page in iterate_failed_row_pages(self._db, self._job):
            yield b"".join(style.encode_line(self._build_data_cells(one), self._build_added_cells(one)) for one in page)

    async def stream_xlsx(self) -> AsyncIterator[bytes]:
        output = _WorkbookOutput()
        sheets = WorkbookWriter(output, [*map(str, self._header), *ERROR_FILE_COLUMNS], ERRORS_SHEET_NAME)
        async for page in iterate_failed_row_pages(self._db, self._job):
            rows = [
                format_cells_of_row_as_xml(sheets, [*self._build_data_cells(one), *self._build_added_cells(one)])
                for one in page
            ]
            await asyncio.to_thread(sheets.write, rows)
            yield output.take_bytes()
        await asyncio.to_thread(sheets.close)
        yield output.take_bytes()

    def _build_data_cells(self, one: FailedRow) -> list[GridCell]:
        record = convert_input_to_record(self._columns, one.input)
        return [
            escape_cell_if_formula(format_cell(record.get(name)), is_escaped=self._is_escaped) for name in self._columns
        ]

    def _build_added_cells(self, one: FailedRow) -> list[GridCell]:
        errors = _add_column_names_to_errors(build_errors_of_failed_row(one), self._columns_by_field)
        return [one.row, escape_formula(join_error_reasons(errors)), escape_formula(join_error_codes(errors))]


class _WorkbookOutput:
    """Collects the output of a workbook until it is sent."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, piece: bytes, /) -> int:
        self._pieces.append(bytes(piece))
        return len(piece)

    def flush(self) -> None:
        """Do nothing: ``take`` returns all data."""

    def take_bytes(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


_match_plain_number = re.compile(r"[+-]?[0-9]+([.,][0-9]+)*([eE][+-]?[0-9]+)?").fullmatch


def escape_cell_if_formula(cell: GridCell, *, is_escaped: bool = False) -> GridCell:
    """Return a cell with an apostrophe in front if a spreadsheet could run it as a formula. Numbers stay as they are.

    ``is_escaped``: the formulas of the imported file have an apostrophe already.
    """
    if not isinstance(cell, str):
        return cell
    text = unescape_formula(cell) if is_escaped else cell
    return text if _match_plain_number(text) else escape_formula(text)


def _map_fields_to_columns(job: Job) -> dict[str, str]:
    plan = ImportParams.from_json(job.params).plan
    return {} if plan is None else {name: column for column, name in plan.ordered_mapping.items()}


def _add_column_names_to_errors(errors: list[RowErrorView], columns_by_field: Mapping[str, str]) -> list[RowErrorView]:
    """Add the column of the file to each error. An error of several fields has several columns."""
    for error in errors:
        names = error["field"]
        if names is not None:
            fields = [names] if names in columns_by_field else names.split(", ")
            error["column"] = ", ".join(columns_by_field.get(name, name) for name in fields)
    return errors


async def _stream_ndjson(db: Database, job: Job) -> AsyncIterator[bytes]:
    """Yield the failed rows as NDJSON, page by page. ``_errors`` is a list of objects."""
    columns, columns_by_field = get_planned_columns(job), _map_fields_to_columns(job)
    async for page in iterate_failed_row_pages(db, job):
        lines = []
        for one in page:
            errors = _add_column_names_to_errors(build_errors_of_failed_row(one), columns_by_field)
            codes = [error["code"] for error in errors]
            added = {ROW_NUMBER_COLUMN: one.row, ERRORS_COLUMN: errors, ERROR_CODES_COLUMN: codes}
            lines.append(convert_input_to_record(columns, one.input) | added)
        yield b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
