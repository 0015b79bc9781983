"""CSV as RFC 4180 has it: UTF-8, a header, CRLF. No value is an empty field, empty text a quoted one."""

import csv
import io
from collections.abc import Iterable, Sequence

from tidemill.connectors.writers.output import Output, defused
from tidemill.domain.columns import Cell, Columns, Row, cells

_WORDS: dict[Cell, str] = {True: "true", False: "false"}


class CsvWriter:
    """Into an output, with one header at its beginning."""

    cut_cells = 0

    def __init__(self, output: Output, columns: Columns, *, spreadsheet_safe: bool = False) -> None:
        self._output = output
        self._columns = columns
        self._safe = spreadsheet_safe
        self._text = io.StringIO(newline="")
        self._lines = csv.writer(self._text, lineterminator="\r\n")
        self._add(columns.header)

    def write(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._add(cells(self._columns, row))
        self._pour()

    def close(self) -> None:
        self._pour()

    def _add(self, line: Sequence[Cell]) -> None:
        if self._safe:
            line = defused(line)
        if "" in line:  # the csv module cannot tell it from no value
            self._text.write(",".join(map(_field, line)) + "\r\n")
        else:
            self._lines.writerow([_WORDS[cell] if isinstance(cell, bool) else cell for cell in line])

    def _pour(self) -> None:
        self._output.write(self._text.getvalue().encode())
        self._text.seek(0)
        self._text.truncate()


def csv_line(line: Sequence[Cell]) -> bytes:
    """One record by itself."""
    return (",".join(map(_field, line)) + "\r\n").encode()


def _field(cell: Cell) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return _WORDS[cell]
        case str():
            return _quoted(cell) if cell == "" or any(mark in cell for mark in ',"\r\n') else cell
        case _:
            return repr(cell)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
