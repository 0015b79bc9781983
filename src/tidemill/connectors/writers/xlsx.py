"""Excel workbooks, streamed: no temporary file, no more in memory than a piece, numbers to their last digit."""

import zipfile
from collections.abc import Iterable, Sequence
from typing import IO

from tidemill.connectors.writers import xlsx_parts as parts
from tidemill.connectors.writers.output import Output, defused
from tidemill.domain.columns import Cell, Columns, Row, cells

MAX_ROWS = 1_048_576  # of a sheet
MAX_TEXT = 32_767  # of a cell, in UTF-16 units
SHEET_BYTES = 1_900_000_000  # below 2 GiB a zip needs no extension, which not every reader has
LEVEL = 3


class XlsxWriter:
    """Into an output that cannot seek. A sheet that is full is followed by another, with the same header."""

    def __init__(self, output: Output, columns: Columns, *, spreadsheet_safe: bool = False) -> None:
        self.cut_cells = 0
        self._columns = columns
        self._safe = spreadsheet_safe
        self._letters = [parts.letters(number) for number in range(len(columns.header))]
        self._zip = zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)  # type: ignore[call-overload]
        self._sheet: IO[bytes] | None = None
        self._sheets = self._row = self._bytes = 0

    def write(self, rows: Iterable[Row]) -> None:
        piece: list[str] = []
        for row in rows:
            if self._sheet is None or self._row == MAX_ROWS or self._bytes > SHEET_BYTES:
                self._pour(piece)
                piece = []
                self._next_sheet()
            piece.append(self._line(cells(self._columns, row)))
        self._pour(piece)

    def close(self) -> None:
        if self._sheet is None:
            self._next_sheet()
        self._end_sheet()
        for name, part in parts.package(self._sheets).items():
            self._zip.writestr(name, part)
        self._zip.close()

    def _pour(self, piece: list[str]) -> None:
        if self._sheet is not None and piece:
            self._bytes += self._sheet.write("".join(piece).encode())

    def _next_sheet(self) -> None:
        self._end_sheet()
        self._sheets += 1
        self._row = self._bytes = 0
        self._sheet = self._zip.open(parts.sheet_path(self._sheets), "w")
        self._sheet.write(parts.SHEET_HEAD)
        self._pour([self._line(self._columns.header, style=' s="1"')])

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(parts.SHEET_TAIL)
            self._sheet.close()

    def _line(self, line: Sequence[Cell], style: str = "") -> str:
        if self._safe:
            line = defused(line)
        self._row += 1
        row, text = str(self._row), []
        for letters, cell in zip(self._letters, line, strict=True):
            if cell is None:
                continue
            if isinstance(cell, str):
                text.append(f'<c r="{letters}{row}"{style} t="inlineStr"><is><t{self._text(cell)}</t></is></c>')
            elif isinstance(cell, bool):
                text.append(f'<c r="{letters}{row}" t="b"><v>{cell:d}</v></c>')
            else:
                text.append(f'<c r="{letters}{row}"><v>{cell!r}</v></c>')
        return f'<row r="{row}">{"".join(text)}</row>'

    def _text(self, text: str) -> str:
        """The rest of a ``<t`` tag and what stands in it."""
        short = parts.cut(text, MAX_TEXT)
        self.cut_cells += short is not text
        return (">" if short == short.strip() else ' xml:space="preserve">') + parts.escape(short)
