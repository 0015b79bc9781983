"""XLSX: one table, row by row. Cells that are far apart cost nothing; entities and what only unpacks are refused."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from tidemill.connectors.csv_rows import checked_header
from tidemill.connectors.records import InputRecord, RecordSource
from tidemill.connectors.writers.xlsx_parts import letters
from tidemill.connectors.xlsx_book import Book, Sheet
from tidemill.connectors.xlsx_sheet import Row, rows
from tidemill.domain.errors import InvalidInput

_encode = msgspec.json.Encoder().encode
_NUL = b"\\u0000"


class XlsxSource(RecordSource):
    """A checkpoint is the number of the sheet's row that was read last. Until it, the sheet is read again.

    Sheets that go on, as "Rows 2" behind "Rows", are one table, and their rows are counted on.
    """

    columns: list[str]

    def __init__(
        self,
        file: BinaryIO,
        checkpoint: dict[str, Any],
        *,
        sheet: str | int | None,
        header: bool,
        max_row_bytes: int,
        max_bytes: int,
    ) -> None:
        self._limit = max_row_bytes
        self._has_header = header
        self._book = Book(file, max_bytes=max_bytes, max_text=max_row_bytes)
        try:
            self._rows = rows(self._book, self._book.sheet(sheet).path)
            self._first = self._begin(is_header=header)
            self._further = self._going_on() if sheet is None else []
        except BaseException:
            self._book.close()
            raise
        self.first_line = self._first.number + int(header)
        super().__init__(checkpoint)

    def close(self) -> None:
        self._book.close()

    def _begin(self, *, is_header: bool) -> Row:
        first = next(self._rows, None)
        if first is None:
            raise InvalidInput("the sheet is empty: it begins with a header")
        if first.is_long:
            raise InvalidInput(f"row {first.number} is longer than {self._limit} bytes: it is no header")
        width = max(first.cells) + 1
        if is_header:
            self.columns = checked_header([str(first.cells.get(at, "")) for at in range(width)])
        else:
            self.columns = [f"column_{n}" for n in range(1, width + 1)]
        return first

    def _read(self, checkpoint: dict[str, Any]) -> Iterator[InputRecord]:
        before = checkpoint.get("sheet_row", 0)
        if not self._has_header and self._first.number > before:
            yield self._record(self._first)
        for row in self._all():
            if row.number > before:
                yield self._record(row)

    def _all(self) -> Iterator[Row]:
        """The rows of all sheets, without the headers of the further ones."""
        last = self._first.number
        for row in self._rows:
            yield row
            last = row.number
        for sheet in self._further:
            for row in islice(rows(self._book, sheet.path, last), 1, None):
                yield row
                last = row.number

    def _going_on(self) -> list[Sheet]:
        """The sheets that go on with the first. InvalidInput if others have rows too: they would be left out."""
        begin, *others = self._book.sheets
        first = {one: next(rows(self._book, one.path), None) for one in others if not one.is_hidden}
        filled = {one: row.cells for one, row in first.items() if row is not None}
        names = [f"{begin.name} {number}" for number in range(2, len(filled) + 2)]
        is_same = self._has_header and all(cells == self._first.cells for cells in filled.values())
        if filled and not (is_same and [one.name for one in filled] == names):
            shown = ", ".join(one.name for one in (begin, *filled))
            raise InvalidInput(f"the workbook has rows in several sheets: {shown}. Say which one with sheet")
        return list(filled)

    def _record(self, row: Row) -> InputRecord:
        place, width = {"sheet_row": row.number}, len(self.columns)
        values = dict.fromkeys(self.columns) | {self.columns[at]: v for at, v in row.cells.items() if at < width}
        data = _encode(values)
        reason = None
        if (last := max(row.cells)) >= width:
            reason = f"a cell in column {letters(last)} where the header ends at {letters(width - 1)}"
        elif row.is_long or len(data) > self._limit:
            reason = f"longer than {self._limit} bytes"
        elif _NUL in data.replace(b"\\\\", b""):
            reason = "a NUL character cannot be stored"
        if reason is None:
            return InputRecord(data, row.number, place)
        text = ", ".join(str(value) for _, value in sorted(row.cells.items())).replace("\x00", "\ufffd")
        defect = {"line": row.number, "code": "invalid", "reason": reason, "value": text[:200]}
        return InputRecord(_encode(text[: 64 * 1024]), row.number, place, defect)
