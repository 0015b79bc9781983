"""Encodes the output of COPY as CSV, NDJSON, JSON or XLSX."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import OutputColumn, OutputFileSpec
from tidemill.core.result_grid import (
    LARGEST_EXACT_INTEGER,
    GridCell,
    GridRow,
    ResultFileColumns,
)
from tidemill.files.writers.byte_output import ByteOutput, escape_formula_cells
from tidemill.files.writers.xlsx_sheets import (
    EMPTY_CELL_XML,
    WorkbookWriter,
    format_boolean_cell_xml,
    format_date_cell_xml,
    format_number_cell_xml,
)

_CSV_BOOLEANS: dict[GridCell, str] = {True: "true", False: "false"}


class CsvWriter:
    """Writes CSV with a header."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: ResultFileColumns, *, spreadsheet_safe: bool = False) -> None:
        self._output = output
        self._columns = columns
        self._safe = spreadsheet_safe
        self._text = io.StringIO(newline="")
        self._lines = csv.writer(self._text, lineterminator="\r\n")
        self._buffer_line(columns.header)

    def write(self, rows: Iterable[GridRow]) -> None:
        for row in rows:
            self._buffer_line(self._columns.build_cells(row))
        self._flush_text()

    def close(self) -> None:
        self._flush_text()

    def _buffer_line(self, line: Sequence[GridCell]) -> None:
        if self._safe:
            line = escape_formula_cells(line)
        if "" in line:  # the csv module writes empty text and None alike
            self._text.write(",".join(map(_format_csv_field, line)) + "\r\n")
        else:
            self._lines.writerow([_CSV_BOOLEANS[cell] if isinstance(cell, bool) else cell for cell in line])

    def _flush_text(self) -> None:
        self._output.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def format_csv_line(line: Sequence[GridCell], *, delimiter: str = ",", quote: str = '"', line_end: str = "\r\n") -> str:
    """Return one row as a line of CSV.

    ``quote`` may be empty. A value that contains the delimiter or a line break is then in double quotes, because it
    cannot be written without.
    """
    special = (delimiter, "\r", "\n", *([quote] if quote else []))
    return delimiter.join(_format_csv_field(cell, special, quote) for cell in line) + line_end


def _format_csv_field(cell: GridCell, special: Sequence[str] = (",", "\r", "\n", '"'), quote: str = '"') -> str:
    match cell:
        case None:
            return ""
        case bool():
            return _CSV_BOOLEANS[cell]
        case str():
            is_quoted = (cell == "" and quote != "") or any(mark in cell for mark in special)
            return _quote_field(cell, quote or '"') if is_quoted else cell
        case _:
            return repr(cell)


def _quote_field(text: str, quote: str) -> str:
    return quote + text.replace(quote, quote * 2) + quote


_encode_json = msgspec.json.Encoder().encode


def _encode_lines(columns: ResultFileColumns, rows: Iterable[GridRow]) -> bytes:
    return b"".join([_encode_json(columns.build_object(row)) + b"\n" for row in rows])


class NdjsonWriter:
    """Writes NDJSON. Every object has every column."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: ResultFileColumns) -> None:
        self._output = output
        self._columns = columns

    def write(self, rows: Iterable[GridRow]) -> None:
        self._output.write(_encode_lines(self._columns, rows))

    def close(self) -> None:
        self._output.write(b"")


RESULT_SHEET_NAME = "Results"


class XlsxWriter:
    """Writes XLSX to an output that cannot seek."""

    def __init__(self, output: ByteOutput, columns: ResultFileColumns, *, spreadsheet_safe: bool = False) -> None:
        self._columns = columns
        self._safe = spreadsheet_safe
        header = escape_formula_cells(columns.header) if spreadsheet_safe else columns.header
        self._sheets = WorkbookWriter(output, map(str, header), RESULT_SHEET_NAME)

    @property
    def cut_cells(self) -> int:
        return self._sheets.cut_cells

    def write(self, rows: Iterable[GridRow]) -> None:
        self._sheets.write(map(self._format_row, rows))

    def close(self) -> None:
        self._sheets.close()

    def _format_row(self, row: GridRow) -> tuple[str, ...]:
        line = self._columns.build_cells(row)
        return format_cells_of_row_as_xml(self._sheets, escape_formula_cells(line) if self._safe else line)


def format_cells_of_row_as_xml(sheets: WorkbookWriter, line: Sequence[GridCell]) -> tuple[str, ...]:
    """Return the cells of a row as the XML of a workbook."""
    return tuple(_format_cell_as_xml(sheets, cell) for cell in line)


def _format_cell_as_xml(sheets: WorkbookWriter, cell: GridCell) -> str:
    if isinstance(cell, str):
        return sheets.format_text_cell_xml(cell)
    if cell is None:
        return EMPTY_CELL_XML
    return format_boolean_cell_xml(cell) if isinstance(cell, bool) else format_number_cell_xml(repr(cell))


CSV_QUOTE, CSV_RECORD_END = b'"', b"\n"


class CsvRecordSplitter:
    """Splits the CSV output of COPY into records, and drops the header.

    COPY doubles quotes in fields, so a line feed ends a record if the number of quotes before it is even.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._is_open = False  # whether a quote is open at the end of the pieces
        self._has_header = False

    def extract_complete_records(self, chunk: bytes) -> bytes:
        """Add a chunk and return the records that are complete now, if any."""
        end = self._find_last_record_end(chunk)
        if end == 0:
            self._buffer_chunk(chunk)
            return b""
        whole = b"".join((*self._pieces, chunk[:end]))
        self._pieces, self._is_open = [], False
        self._buffer_chunk(chunk[end:])
        return self._strip_header_once(whole)

    def extract_last_record(self) -> bytes:
        """Return a last record without a line feed, if any; InvalidInput if it is truncated."""
        rest, self._pieces = b"".join(self._pieces), []
        if self._is_open:
            raise InvalidInput("The rows are truncated inside a quoted value")
        return self._strip_header_once(rest + CSV_RECORD_END) if rest else b""

    def _buffer_chunk(self, piece: bytes) -> None:
        if piece:
            self._pieces.append(piece)
            self._is_open ^= piece.count(CSV_QUOTE) % 2 == 1

    def _find_last_record_end(self, chunk: bytes) -> int:
        """Return the end of the last complete record; 0 if no record is complete."""
        end = chunk.rfind(CSV_RECORD_END)
        quotes = chunk.count(CSV_QUOTE, 0, end) if end >= 0 else 0
        while end >= 0 and (quotes + self._is_open) % 2:
            quote = chunk.rfind(CSV_QUOTE, 0, end)
            earlier = chunk.rfind(CSV_RECORD_END, 0, max(quote, 0))
            quotes -= chunk.count(CSV_QUOTE, max(earlier, 0), end)
            end = earlier
        return end + 1

    def _strip_header_once(self, whole: bytes) -> bytes:
        if self._has_header:
            return whole
        self._has_header = True
        end = whole.find(CSV_RECORD_END)
        while whole.count(CSV_QUOTE, 0, end) % 2:
            end = whole.find(CSV_RECORD_END, end + 1)
        return whole[end + 1 :]


class PassthroughEncoder:
    """Writes the output of COPY unchanged."""

    cut_cells = 0

    def __init__(self, output: ByteOutput) -> None:
        self._output = output

    def write(self, chunk: bytes, /) -> None:
        self._output.write(chunk)

    def close(self) -> None:
        self._output.flush()


class JsonArrayEncoder:
    """Converts NDJSON to a JSON array with one object per line."""

    cut_cells = 0

    def __init__(self, output: ByteOutput) -> None:
        self._output = output
        self._before = b"[\n"  # written before the next object
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


class JsonWriter:
    """Writes a JSON array with one object per line. Every object has every column."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: ResultFileColumns) -> None:
        self._encoder = JsonArrayEncoder(output)
        self._columns = columns

    def write(self, rows: Iterable[GridRow]) -> None:
        self._encoder.write(_encode_lines(self._columns, rows))

    def close(self) -> None:
        self._encoder.close()


FormatValue = Callable[[str], str | None]
"""Returns the cell of a value; None if it must be a text cell."""

SPREADSHEET_EXACT_DIGITS = 15  # spreadsheets keep at most 15 digits of a number
SPREADSHEET_DECIMAL_PLACES_MAX = 300  # smaller numbers may become 0 in a spreadsheet
SPREADSHEET_NUMBER_MAX, SPREADSHEET_NUMBER_MIN = 9.99999999999999e307, 2.3e-308
SPREADSHEET_EPOCH_ORDINAL = date(1899, 12, 30).toordinal()
SPREADSHEET_FIRST_DAY_ORDINAL = date(1900, 3, 1).toordinal()  # the format has a 29 February 1900, which did not exist
_DAY_MS = 86_400_000
_FLOAT_SQL_TYPES = ("real", "double precision")
_BOOLEAN_CELLS = {
    "t": format_boolean_cell_xml(True),
    "true": format_boolean_cell_xml(True),
    "f": format_boolean_cell_xml(False),
    "false": format_boolean_cell_xml(False),
}
_match_integer = re.compile(r"-?[1-9][0-9]*|0").fullmatch
_match_decimal = re.compile(r"-?([0-9]+)\.([0-9]+)").fullmatch


class ColumnCellFormatter:
    """Formats the cells of a column. An empty value becomes an empty cell."""

    def __init__(self, column: OutputColumn, as_text: Callable[[str], str]) -> None:
        self._make = _choose_cell_xml_formatter(column)
        self._as_text = as_text

    def format_cells_as_xml(self, values: Iterable[str]) -> Iterable[str]:
        make, as_text = self._make, self._as_text
        if make is None:
            return [as_text(value) if value else EMPTY_CELL_XML for value in values]
        return [(make(value) or as_text(value)) if value else EMPTY_CELL_XML for value in values]


def _choose_cell_xml_formatter(column: OutputColumn) -> FormatValue | None:
    match column.type:
        case "integer":
            return _format_integer_cell_xml_if_exact
        case "number":
            return (
                _format_float_cell_xml_if_exact
                if column.sql_type in _FLOAT_SQL_TYPES
                else _format_numeric_cell_xml_if_exact
            )
        case "boolean":
            return _BOOLEAN_CELLS.get
        case "date":
            return _format_date_cell_xml_if_exact
        case "timestamp":
            return _format_timestamp_cell_xml_if_exact
        case _:
            return None


def _format_integer_cell_xml_if_exact(text: str) -> str | None:
    is_exact = _match_integer(text) and -LARGEST_EXACT_INTEGER <= int(text) <= LARGEST_EXACT_INTEGER
    return format_number_cell_xml(text) if is_exact else None


def _format_numeric_cell_xml_if_exact(text: str) -> str | None:
    """Return a number cell; None if a spreadsheet would lose digits or the value is NaN."""
    match = _match_decimal(text)
    if match is None:
        return _format_integer_cell_xml_if_exact(text) if len(text.lstrip("-")) <= SPREADSHEET_EXACT_DIGITS else None
    is_held = (
        len(match[2]) <= SPREADSHEET_DECIMAL_PLACES_MAX
        and len((match[1] + match[2]).lstrip("0")) <= SPREADSHEET_EXACT_DIGITS
    )
    return format_number_cell_xml(text) if is_held else None


def _format_float_cell_xml_if_exact(text: str) -> str | None:
    value = float(text)
    is_held = math.isfinite(value) and (SPREADSHEET_NUMBER_MIN <= abs(value) <= SPREADSHEET_NUMBER_MAX or text == "0")
    return format_number_cell_xml(text) if is_held else None


def _format_date_cell_xml_if_exact(text: str) -> str | None:
    try:
        day = date.fromisoformat(text).toordinal()
    except ValueError:
        return None
    return (
        format_date_cell_xml(day - SPREADSHEET_EPOCH_ORDINAL, "date") if day >= SPREADSHEET_FIRST_DAY_ORDINAL else None
    )


def _format_timestamp_cell_xml_if_exact(text: str) -> str | None:
    """Return a date cell in UTC, with milliseconds; None for a finer precision, which becomes text."""
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
    return format_date_cell_xml(days, "milliseconds" if milliseconds else "seconds")


EXPORT_SHEET_NAME = "Rows"
CSV_FIELD_MAX_CHARS = 1 << 30  # the maximum of a value in PostgreSQL


class XlsxEncoder:
    """Encodes XLSX. NULL and empty text both become empty cells, because a spreadsheet does not distinguish them."""

    def __init__(self, form: OutputFileSpec, output: ByteOutput) -> None:
        csv.field_size_limit(max(CSV_FIELD_MAX_CHARS, csv.field_size_limit()))
        names = [column.name for column in form.columns]
        self._records = CsvRecordSplitter()
        self._sheets = WorkbookWriter(output, names, EXPORT_SHEET_NAME)
        self._columns = [ColumnCellFormatter(column, self._sheets.format_text_cell_xml) for column in form.columns]

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
        # Only line feeds end a record in COPY; other line ends occur inside quotes.
        lines = io.StringIO(records.decode(), newline="\n")
        rows = [fields or [""] for fields in csv.reader(lines, strict=True)]  # a single NULL column gives no fields
        if {*map(len, rows)} != {len(self._columns)}:
            raise InvalidInput(f"Every row must have {len(self._columns)} fields, one for each column")
        columns = zip(*rows, strict=True)
        made = [cells.format_cells_as_xml(values) for cells, values in zip(self._columns, columns, strict=True)]
        return zip(*made, strict=True)
