"""Reads the rows of one sheet of a workbook. Sparse cells cost nothing; entities and compression bombs are refused."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint, InputDefect
from tidemill.files.formats.block_reader import EncodedRecord, RecordReader
from tidemill.files.formats.csv_reader import validate_header_names
from tidemill.files.formats.xlsx_workbook import (
    SharedStrings,
    SheetInfo,
    Workbook,
    XmlAttributes,
    XmlPartHandler,
    format_serial_date,
    parse_xml_part,
    unescape_xlsx_text,
)
from tidemill.files.writers.xlsx_sheets import format_column_letters

SHEET_ROWS_MAX, SHEET_COLUMNS_MAX = 1_048_576, 16_384
INTEGER_DIGITS_MAX = 19  # of a whole number that is one everywhere
_COLUMN_LETTERS = re.compile(r"[A-Z]{1,3}")
CellValue = str | int | float | bool


class SharedStringIndex(int):
    """The number of a shared string: a million cells may have the same, and none of them needs a copy yet."""


@dataclass(slots=True)
class SheetRow:
    """The cells that hold something, by their column from 0. Of a row that is too long, those before the end of it."""

    number: int
    cells: dict[int, CellValue] = field(default_factory=dict)
    size: int = 0
    is_long: bool = False

    def resolve_shared_strings(self, strings: SharedStrings, after: int) -> "SheetRow":
        cells = {at: strings[value] if type(value) is SharedStringIndex else value for at, value in self.cells.items()}
        return SheetRow(self.number + after, cells, self.size, self.is_long)


def read_sheet_rows(book: Workbook, path: str, after: int = 0) -> Iterator[SheetRow]:
    """The rows of a sheet that hold something, counted on from others."""
    hearing = _SheetHandler(book)
    for _ in parse_xml_part(book.read_part(path), hearing):
        yield from (row.resolve_shared_strings(book.strings, after) for row in hearing.done if row.cells)
        hearing.done.clear()


class _SheetHandler(XmlPartHandler):
    def __init__(self, book: Workbook) -> None:
        self.done: list[SheetRow] = []
        self._book = book
        self._shown = {str(style): shown for style, shown in enumerate(book.shown)}
        self._row = SheetRow(0)
        self._column = -1
        self._digits = ""
        self._kind = self._style = ""
        self._text: list[str] = []
        self._size = 0
        self._is_value = self._is_aloud = False
        self._columns: dict[str, int] = {}

    def start_element(self, name: str, attributes: XmlAttributes) -> None:
        if name == "c":
            self._start_cell(attributes)
        elif name == "v" or name == "t":  # noqa: PLR1714  heard for every cell
            self._is_value = not self._is_aloud
        elif name == "row":
            self._start_row(attributes.get("r"))
        elif name == "rPh":
            self._is_aloud = True

    def end_element(self, name: str) -> None:
        if name == "v" or name == "t":  # noqa: PLR1714
            self._is_value = False
        elif name == "c":
            if self._text:
                self._add_value(self._convert_value("".join(self._text)))
                self._text, self._size = [], 0
        elif name == "row":
            self.done.append(self._row)
        elif name == "rPh":
            self._is_aloud = False

    def add_text(self, data: str) -> None:
        if self._is_value:
            self._text.append(data)
            self._size += len(data)
            if self._size > self._book.max_text:
                raise InvalidInput(f"a cell of row {self._row.number} has more than {self._book.max_text} characters")

    def _add_value(self, value: CellValue) -> None:
        row = self._row
        row.size += self._book.strings.get_string_byte_size(value) if type(value) is SharedStringIndex else self._size
        row.is_long = row.is_long or row.size > self._book.max_text
        if not row.is_long or not row.cells:
            row.cells[self._column] = value

    def _start_row(self, row_number: str | None) -> None:
        self._digits = row_number or str(self._row.number + 1)
        self._row, self._column = SheetRow(self._parse_row_number(self._digits)), -1

    def _parse_row_number(self, row_number: str) -> int:
        number = int(row_number) if row_number.isascii() and row_number.isdecimal() and len(row_number) < 8 else 0  # noqa: PLR2004
        if not self._row.number < number <= SHEET_ROWS_MAX:
            raise InvalidInput(
                f"row {row_number} cannot be behind row {self._row.number}: a sheet ends at XFD{SHEET_ROWS_MAX}"
            )
        return number

    def _start_cell(self, attributes: XmlAttributes) -> None:
        self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
        reference = attributes.get("r")
        column = self._column + 1 if reference is None else self._parse_column(reference)
        if not self._column < column < SHEET_COLUMNS_MAX:
            raise InvalidInput(
                f"cell {reference} of row {self._row.number} cannot be: a sheet ends at XFD{SHEET_ROWS_MAX}"
            )
        self._column = column

    def _parse_column(self, reference: str) -> int:
        """Letters are looked up: there are few of them, and many cells."""
        letters = reference.rstrip("0123456789")
        digits = reference[len(letters) :]
        if digits != self._digits:
            raise InvalidInput(
                f"cell {reference} cannot be in row {self._row.number}: a sheet ends at XFD{SHEET_ROWS_MAX}"
            )
        found = self._columns.get(letters)
        if found is None:
            found = parse_column_letters(letters) if _COLUMN_LETTERS.fullmatch(letters) else SHEET_COLUMNS_MAX
            self._columns[letters] = found
        return found

    def _convert_value(self, text: str) -> CellValue:
        kind = self._kind
        if kind == "s":
            return SharedStringIndex(text if text.isascii() and text.isdecimal() else -1)
        if kind == "n":
            return self._convert_number(text)
        return text in ("1", "true") if kind == "b" else unescape_xlsx_text(text)

    def _convert_number(self, text: str) -> CellValue:
        """Whole numbers stay whole; those that a style shows as dates are dates."""
        try:
            number = float(text)
        except ValueError:
            return text
        if not math.isfinite(number):
            return text
        shown = self._shown.get(self._style)
        date = shown and format_serial_date(number, shown, is_1904=self._book.is_1904)
        if date:
            return date
        if len(text) < INTEGER_DIGITS_MAX and text.lstrip("-").isdecimal():
            return int(text)
        return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def parse_column_letters(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number - 1


_encode_json = msgspec.json.Encoder().encode
_JSON_ESCAPED_NUL = b"\\u0000"


class XlsxReader(RecordReader):
    """A checkpoint is the number of the sheet's row that was read last. Until it, the sheet is read again.

    Sheets that go on, as "Rows 2" behind "Rows", are one table, and their rows are counted on.
    """

    columns: list[str]

    def __init__(
        self,
        file: BinaryIO,
        checkpoint: Checkpoint,
        *,
        sheet: str | int | None,
        header: bool,
        max_row_bytes: int,
        max_bytes: int,
    ) -> None:
        self._limit = max_row_bytes
        self._has_header = header
        self._book = Workbook(file, max_bytes=max_bytes, max_text=max_row_bytes)
        try:
            self._rows = read_sheet_rows(self._book, self._book.find_sheet(sheet).path)
            self._first = self._read_first_row(is_header=header)
            self._further = self._find_continuation_sheets() if sheet is None else []
        except BaseException:
            self._book.close()
            raise
        self.first_line = self._first.number + int(header)
        super().__init__(checkpoint)

    def close(self) -> None:
        self._book.close()

    def _read_first_row(self, *, is_header: bool) -> SheetRow:
        first = next(self._rows, None)
        if first is None:
            raise InvalidInput("the sheet is empty: it begins with a header")
        if first.is_long:
            raise InvalidInput(f"row {first.number} is longer than {self._limit} bytes: it is no header")
        width = max(first.cells) + 1
        if is_header:
            self.columns = validate_header_names([str(first.cells.get(at, "")) for at in range(width)])
        else:
            self.columns = [f"column_{n}" for n in range(1, width + 1)]
        return first

    def _iter_records(self, checkpoint: Checkpoint) -> Iterator[EncodedRecord]:
        before = checkpoint.get("sheet_row", 0)
        if not self._has_header and self._first.number > before:
            yield self._make_record(self._first)
        for row in self._iter_all_rows():
            if row.number > before:
                yield self._make_record(row)

    def _iter_all_rows(self) -> Iterator[SheetRow]:
        """The rows of all sheets, without the headers of the further ones."""
        last = self._first.number
        for row in self._rows:
            yield row
            last = row.number
        for sheet in self._further:
            for row in islice(read_sheet_rows(self._book, sheet.path, last), 1, None):
                yield row
                last = row.number

    def _find_continuation_sheets(self) -> list[SheetInfo]:
        """The sheets that go on with the first. InvalidInput if others have rows too: they would be left out."""
        begin, *others = self._book.sheets
        first = {one: next(read_sheet_rows(self._book, one.path), None) for one in others if not one.is_hidden}
        filled = {one: row.cells for one, row in first.items() if row is not None}
        names = [f"{begin.name} {number}" for number in range(2, len(filled) + 2)]
        is_same = self._has_header and all(cells == self._first.cells for cells in filled.values())
        if filled and not (is_same and [one.name for one in filled] == names):
            shown = ", ".join(one.name for one in (begin, *filled))
            raise InvalidInput(f"the workbook has rows in several sheets: {shown}. Say which one with sheet")
        return list(filled)

    def _make_record(self, row: SheetRow) -> EncodedRecord:
        place, width = {"sheet_row": row.number}, len(self.columns)
        values = dict.fromkeys(self.columns) | {self.columns[at]: v for at, v in row.cells.items() if at < width}
        data = _encode_json(values)
        reason = None
        if (last := max(row.cells)) >= width:
            end = format_column_letters(width - 1)
            reason = f"a cell in column {format_column_letters(last)} where the header ends at {end}"
        elif row.is_long or len(data) > self._limit:
            reason = f"longer than {self._limit} bytes"
        elif _JSON_ESCAPED_NUL in data.replace(b"\\\\", b""):
            reason = "a NUL character cannot be stored"
        if reason is None:
            return EncodedRecord(data, row.number, place)
        text = ", ".join(str(value) for _, value in sorted(row.cells.items())).replace("\x00", "\ufffd")
        defect = InputDefect(line=row.number, code="invalid", reason=reason, value=text[:200])
        return EncodedRecord(_encode_json(text[: 64 * 1024]), row.number, place, defect)
