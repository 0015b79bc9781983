"""Excel workbooks, streamed: no temporary file, no more in memory than a piece, numbers to their last digit."""

import zipfile
from collections.abc import Iterable, Sequence
from typing import IO

from tidemill.connectors.writers import xlsx_parts as parts
from tidemill.connectors.writers.output import Output, defused
from tidemill.connectors.writers.xlsx_parts import Moment
from tidemill.domain.columns import Cell, Columns, Row, cells

MAX_ROWS = 1_048_576  # of a sheet
MAX_TEXT = 32_767  # of a cell, in UTF-16 units
SHEET_BYTES = 1_900_000_000  # below 2 GiB a zip needs no extension, which not every reader has
PIECE_ROWS = 1_000
LEVEL = 3
SHEET = "Results"


class XlsxWriter:
    """The rows of a job."""

    def __init__(self, output: Output, columns: Columns, *, spreadsheet_safe: bool = False) -> None:
        self._columns = columns
        self._safe = spreadsheet_safe
        self._sheets = Sheets(output, self._line(columns.header), SHEET)

    @property
    def cut_cells(self) -> int:
        return self._sheets.cut_cells

    def write(self, rows: Iterable[Row]) -> None:
        self._sheets.write(self._line(cells(self._columns, row)) for row in rows)

    def close(self) -> None:
        self._sheets.close()

    def _line(self, line: Sequence[Cell]) -> Sequence[Cell]:
        return defused(line) if self._safe else line


class Sheets:
    """Into an output that cannot seek. A sheet that is full is followed by another, with the same header."""

    def __init__(self, output: Output, header: Sequence[Cell], name: str) -> None:
        self.cut_cells = 0
        self._header = header
        self._name = name
        self._letters = [parts.letters(number) for number in range(len(header))]
        self._zip = zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)  # type: ignore[call-overload]
        self._sheet: IO[bytes] | None = None
        self._sheets = self._row = self._bytes = 0

    def write(self, rows: Iterable[Sequence[Cell | Moment]]) -> None:
        piece: list[str] = []
        for row in rows:
            if self._sheet is None or self._row == MAX_ROWS or self._bytes > SHEET_BYTES:
                self._pour(piece)
                self._next_sheet()
            piece.append(self._line(row))
            if len(piece) == PIECE_ROWS:
                self._pour(piece)
        self._pour(piece)

    def close(self) -> None:
        if self._sheet is None:
            self._next_sheet()
        self._end_sheet()
        for name, part in parts.package(self._sheets, self._name).items():
            self._zip.writestr(name, part)
        self._zip.close()

    def _pour(self, piece: list[str]) -> None:
        if self._sheet is not None and piece:
            self._bytes += self._sheet.write("".join(piece).encode())
            piece.clear()

    def _next_sheet(self) -> None:
        self._end_sheet()
        self._sheets += 1
        self._row = self._bytes = 0
        self._sheet = self._zip.open(parts.sheet_path(self._sheets), "w")
        self._sheet.write(parts.SHEET_HEAD)
        self._pour([self._line(self._header, style=f' s="{parts.HEADER_STYLE}"')])

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(parts.SHEET_TAIL)
            self._sheet.close()

    def _line(self, line: Sequence[Cell | Moment], style: str = "") -> str:
        self._row += 1
        row, text = str(self._row), []
        for letters, cell in zip(self._letters, line, strict=True):
            if cell is None:
                continue
            if isinstance(cell, str):
                text.append(f'<c r="{letters}{row}"{style} t="inlineStr"><is><t{self._text(cell)}</t></is></c>')
            elif isinstance(cell, bool):
                text.append(f'<c r="{letters}{row}" t="b"><v>{cell:d}</v></c>')
            elif isinstance(cell, Moment):
                text.append(f'<c r="{letters}{row}" s="{parts.STYLES[cell.shown]}"><v>{cell.days!r}</v></c>')
            else:
                text.append(f'<c r="{letters}{row}"><v>{cell!r}</v></c>')
        return f'<row r="{row}">{"".join(text)}</row>'

    def _text(self, text: str) -> str:
        """The rest of a ``<t`` tag and what stands in it."""
        short = parts.cut(text, MAX_TEXT)
        self.cut_cells += short is not text
        return (">" if short == short.strip() else ' xml:space="preserve">') + parts.escape(short)
