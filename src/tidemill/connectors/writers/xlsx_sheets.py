"""The sheets of a workbook, streamed: no temporary file, no more in memory than a piece."""

import zipfile
from collections.abc import Iterable
from typing import IO

from tidemill.connectors.writers import xlsx_parts as parts
from tidemill.connectors.writers.output import Output

MAX_ROWS = 1_048_576  # of a sheet
MAX_TEXT = 32_767  # of a cell, in UTF-16 units
SHEET_BYTES = 1_900_000_000  # below 2 GiB a zip needs no extension, which not every reader has
PIECE_ROWS = 1_000
LEVEL = 3


class _Zip(zipfile.ZipFile):
    def __del__(self) -> None:
        """Nothing: one that was not closed is half a workbook, and needs no end."""


class Sheets:
    """Into an output that cannot seek. A sheet that is full is followed by another, with the same header.

    A row is a tuple of cells as ``xlsx_parts`` and ``text`` make them, as many as the header has names.
    """

    def __init__(self, output: Output, header: Iterable[str], name: str) -> None:
        self.cut_cells = 0
        self._name = name
        self._header = tuple(parts.in_header(self.text(each)) for each in header)
        self._template = parts.row_template(len(self._header))
        self._zip = _Zip(output, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL)  # type: ignore[call-overload]
        self._sheet: IO[bytes] | None = None
        self._sheets = self._row = self._bytes = 0

    def text(self, text: str) -> str:
        """A cell of text, cut to what a cell has room for."""
        if parts.is_plain(text):
            return parts.plain_text(text)
        short = parts.cut(text, MAX_TEXT)
        self.cut_cells += short is not text
        return parts.odd_text(short)

    def write(self, rows: Iterable[tuple[str, ...]]) -> None:
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
        self._pour([self._line(self._header)])

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(parts.SHEET_TAIL)
            self._sheet.close()

    def _line(self, row: tuple[str, ...]) -> str:
        self._row += 1
        return self._template.replace(parts.ROW, str(self._row)) % row
