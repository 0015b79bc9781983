"""Encodes the output of COPY as CSV, NDJSON, JSON or XLSX."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import OutputColumn, OutputFileSpec
from tidemill.core.result_grid import LARGEST_EXACT_INTEGER
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.files.writers.xlsx_sheets import (
    EMPTY_CELL_XML,
    WorkbookWriter,
    format_boolean_cell,
    format_date_cell,
    format_number_cell,
)

CSV_QUOTE, CSV_RECORD_END = b'"', b"\n"


class CsvRecordSplitter:
    """CSV as COPY writes it: a line feed ends a record unless a quote is open, and a quote in a field is doubled.

    So a line feed ends a record where the number of quotes before it is even. The first record, the header, is dropped.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._is_open = False  # a quote, at the end of the pieces
        self._has_header = False

    def extract_complete_records(self, chunk: bytes) -> bytes:
        """All records that are whole now, or nothing."""
        end = self._find_record_end(chunk)
        if end == 0:
            self._buffer_chunk(chunk)
            return b""
        whole = b"".join((*self._pieces, chunk[:end]))
        self._pieces, self._is_open = [], False
        self._buffer_chunk(chunk[end:])
        return self._strip_header(whole)

    def extract_last_record(self) -> bytes:
        """The last record, if nothing ended it. InvalidInput when it is not whole."""
        rest, self._pieces = b"".join(self._pieces), []
        if self._is_open:
            raise InvalidInput("the rows break off in the midst of a quoted value")
        return self._strip_header(rest + CSV_RECORD_END) if rest else b""

    def _buffer_chunk(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._is_open ^= piece.count(CSV_QUOTE) % 2 == 1

    def _find_record_end(self, chunk: bytes) -> int:
        """Behind the last record that ends in it; 0 if none does."""
        end = chunk.rfind(CSV_RECORD_END)
        quotes = chunk.count(CSV_QUOTE, 0, end) if end >= 0 else 0
        while end >= 0 and (quotes + self._is_open) % 2:
            quote = chunk.rfind(CSV_QUOTE, 0, end)
            earlier = chunk.rfind(CSV_RECORD_END, 0, max(quote, 0))
            quotes -= chunk.count(CSV_QUOTE, max(earlier, 0), end)
            end = earlier
        return end + 1

    def _strip_header(self, whole: bytes) -> bytes:
        if self._has_header:
            return whole
        self._has_header = True
        end = whole.find(CSV_RECORD_END)
        while whole.count(CSV_QUOTE, 0, end) % 2:
            end = whole.find(CSV_RECORD_END, end + 1)
        return whole[end + 1 :]


class PassthroughEncoder:
    """What comes is what goes."""

    cut_cells = 0

    def __init__(self, output: ByteOutput) -> None:
        self._output = output

    def write(self, chunk: bytes, /) -> None:
        self._output.write(chunk)

    def close(self) -> None:
        self._output.flush()


class JsonArrayEncoder:
    """Lines that are an object each become one array, still an object a line."""

    cut_cells = 0

    def __init__(self, output: ByteOutput) -> None:
        self._output = output
        self._before = b"[\n"  # what stands between what was written and what comes
        self._is_empty = True

    def write(self, chunk: bytes, /) -> None:
        if not chunk:
            return
        ends = chunk.endswith(b"\n")
        lines = chunk[:-1] if ends else chunk
        self._output.write(self._before + lines.replace(b"\n", b",\n"))
        self._before = b",\n" if ends else b""
        self._is_empty = False

    def close(self) -> None:
        self._output.write(b"[]\n" if self._is_empty else b"\n]\n")
        self._output.flush()


FormatValue = Callable[[str], str | None]
"""A cell of a value; None for one that must be text."""

SPREADSHEET_EXACT_DIGITS = 15  # a spreadsheet keeps no more of a number
SPREADSHEET_DECIMAL_PLACES_MAX = 300  # after the point: what is smaller may be nothing to it
SPREADSHEET_NUMBER_MAX, SPREADSHEET_NUMBER_MIN = 9.99999999999999e307, 2.3e-308
SPREADSHEET_EPOCH_ORDINAL = date(1899, 12, 30).toordinal()
SPREADSHEET_FIRST_DAY_ORDINAL = date(1900, 3, 1).toordinal()  # the format believes in a 29 February before it
_DAY_MS = 86_400_000
_FLOAT_SQL_TYPES = ("real", "double precision")
_BOOLEAN_CELLS = {
    "t": format_boolean_cell(True),
    "true": format_boolean_cell(True),
    "f": format_boolean_cell(False),
    "false": format_boolean_cell(False),
}
_match_integer = re.compile(r"-?[1-9][0-9]*|0").fullmatch
_match_decimal = re.compile(r"-?([0-9]+)\.([0-9]+)").fullmatch


class ColumnCellFormatter:
    """Makes the cells of a column. An empty value is an empty cell."""

    def __init__(self, column: OutputColumn, as_text: Callable[[str], str]) -> None:
        self._make = _choose_formatter(column)
        self._as_text = as_text

    def format_cells_xml(self, values: Iterable[str]) -> Iterable[str]:
        make, as_text = self._make, self._as_text
        if make is None:
            return [as_text(value) if value else EMPTY_CELL_XML for value in values]
        return [(make(value) or as_text(value)) if value else EMPTY_CELL_XML for value in values]


def _choose_formatter(column: OutputColumn) -> FormatValue | None:
    match column.type:
        case "integer":
            return _make_integer_cell_xml
        case "number":
            return _make_float_cell_xml if column.sql_type in _FLOAT_SQL_TYPES else _make_numeric_cell_xml
        case "boolean":
            return _BOOLEAN_CELLS.get
        case "date":
            return _make_date_cell_xml
        case "timestamp":
            return _make_timestamp_cell_xml
        case _:
            return None


def _make_integer_cell_xml(text: str) -> str | None:
    is_exact = _match_integer(text) and -LARGEST_EXACT_INTEGER <= int(text) <= LARGEST_EXACT_INTEGER
    return format_number_cell(text) if is_exact else None


def _make_numeric_cell_xml(text: str) -> str | None:
    """A numeric has any number of digits, and may be none at all."""
    found = _match_decimal(text)
    if found is None:
        return _make_integer_cell_xml(text) if len(text.lstrip("-")) <= SPREADSHEET_EXACT_DIGITS else None
    is_held = (
        len(found[2]) <= SPREADSHEET_DECIMAL_PLACES_MAX
        and len((found[1] + found[2]).lstrip("0")) <= SPREADSHEET_EXACT_DIGITS
    )
    return format_number_cell(text) if is_held else None


def _make_float_cell_xml(text: str) -> str | None:
    value = float(text)
    is_held = math.isfinite(value) and (SPREADSHEET_NUMBER_MIN <= abs(value) <= SPREADSHEET_NUMBER_MAX or text == "0")
    return format_number_cell(text) if is_held else None


def _make_date_cell_xml(text: str) -> str | None:
    try:
        day = date.fromisoformat(text).toordinal()
    except ValueError:
        return None
    return format_date_cell(day - SPREADSHEET_EPOCH_ORDINAL, "date") if day >= SPREADSHEET_FIRST_DAY_ORDINAL else None


def _make_timestamp_cell_xml(text: str) -> str | None:
    """In UTC: a cell has no zone. Milliseconds are kept; what is finer is text, whole."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and at.tzinfo is not UTC:
            at = at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    milliseconds, finer = divmod(at.microsecond, 1_000)
    day = at.toordinal()
    if finer or day < SPREADSHEET_FIRST_DAY_ORDINAL:
        return None
    seconds = (at.hour * 60 + at.minute) * 60 + at.second
    days = day - SPREADSHEET_EPOCH_ORDINAL + (seconds * 1_000 + milliseconds) / _DAY_MS
    return format_date_cell(days, "milliseconds" if milliseconds else "seconds")


EXPORT_SHEET_NAME = "Rows"
CSV_FIELD_MAX_CHARS = 1 << 30  # PostgreSQL has none


class XlsxEncoder:
    """An empty field is an empty cell, quoted or not: a spreadsheet does not tell them apart."""

    def __init__(self, form: OutputFileSpec, output: ByteOutput) -> None:
        csv.field_size_limit(max(CSV_FIELD_MAX_CHARS, csv.field_size_limit()))
        names = [column.name for column in form.columns]
        self._records = CsvRecordSplitter()
        self._sheets = WorkbookWriter(output, names, EXPORT_SHEET_NAME)
        self._columns = [ColumnCellFormatter(column, self._sheets.format_text_cell) for column in form.columns]

    @property
    def cut_cells(self) -> int:
        return self._sheets.cut_cells

    def write(self, chunk: bytes, /) -> None:
        if records := self._records.extract_complete_records(chunk):
            self._sheets.write(self._convert_csv_records(records))

    def close(self) -> None:
        if rest := self._records.extract_last_record():
            self._sheets.write(self._convert_csv_records(rest))
        self._sheets.close()

    def _convert_csv_records(self, records: bytes) -> Iterable[tuple[str, ...]]:
        # Line feeds alone end a line here, as they do in COPY; other line ends stand in quotes.
        lines = io.StringIO(records.decode(), newline="\n")
        rows = [fields or [""] for fields in csv.reader(lines, strict=True)]  # an only column that is NULL: no fields
        if {*map(len, rows)} != {len(self._columns)}:
            raise InvalidInput(f"the rows have not {len(self._columns)} fields each, as there are columns")
        columns = zip(*rows, strict=True)
        made = [cells.format_cells_xml(values) for cells, values in zip(self._columns, columns, strict=True)]
        return zip(*made, strict=True)
