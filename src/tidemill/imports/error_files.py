"""Streams the failed rows of an import as files that a user can fix and send back."""

import asyncio
import codecs
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tidemill.core.file_format import FORMAT_CONTENT_TYPES, FileFormat, FileLayout, escape_formula, unescape_formula
from tidemill.core.job import Job
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
from tidemill.imports.failed_rows import (
    RowErrorView,
    build_errors_of_failed_row,
    check_job_not_purged,
    convert_input_to_record,
    get_planned_columns,
    iterate_failed_row_pages,
    join_error_codes,
    join_error_reasons,
    read_columns_of_failed_rows,
)
from tidemill.imports.import_plan import ImportParams
from tidemill.imports.import_records import FailedRow
from tidemill.store.database import Database


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
            yield output.take()
        await asyncio.to_thread(sheets.close)
        yield output.take()

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

    def take(self) -> bytes:
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
