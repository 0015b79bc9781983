"""Writes result rows as CSV (RFC 4180), NDJSON or XLSX."""

import csv
import io
from collections.abc import Iterable, Sequence

import msgspec

from tidemill.core.result_grid import GridCell, GridColumns, GridRow, build_row_cells, build_row_object
from tidemill.files.writers.byte_output import ByteOutput, escape_formula_cells
from tidemill.files.writers.xlsx_sheets import (
    EMPTY_CELL_XML,
    WorkbookWriter,
    format_boolean_cell_xml,
    format_number_cell_xml,
)

_CSV_BOOLEANS: dict[GridCell, str] = {True: "true", False: "false"}


class CsvWriter:
    """Writes CSV with a header."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: GridColumns, *, spreadsheet_safe: bool = False) -> None:
        self._output = output
        self._columns = columns
        self._safe = spreadsheet_safe
        self._text = io.StringIO(newline="")
        self._lines = csv.writer(self._text, lineterminator="\r\n")
        self._buffer_line(columns.header)

    def write(self, rows: Iterable[GridRow]) -> None:
        for row in rows:
            self._buffer_line(build_row_cells(self._columns, row))
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


class NdjsonWriter:
    """Writes NDJSON. Every object has every column."""

    cut_cells = 0

    def __init__(self, output: ByteOutput, columns: GridColumns) -> None:
        self._output = output
        self._columns = columns

    def write(self, rows: Iterable[GridRow]) -> None:
        lines = [_encode_json(build_row_object(self._columns, row)) + b"\n" for row in rows]
        self._output.write(b"".join(lines))

    def close(self) -> None:
        self._output.write(b"")


RESULT_SHEET_NAME = "Results"


class XlsxWriter:
    """Writes XLSX to an output that cannot seek."""

    def __init__(self, output: ByteOutput, columns: GridColumns, *, spreadsheet_safe: bool = False) -> None:
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
        line = build_row_cells(self._columns, row)
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
