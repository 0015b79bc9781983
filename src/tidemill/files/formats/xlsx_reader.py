"""Reads the rows of a workbook's sheet. Rejects XML entities and decompression bombs. Empty cells use no memory."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import BinaryIO

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputDefect
from tidemill.files.file_sample import SampleRow
from tidemill.files.formats.block_reader import EncodedRecord, RecordReader
from tidemill.files.formats.column_names import derive_column_names, generate_column_names, join_header_rows
from tidemill.files.formats.xlsx_workbook import (
    SharedStrings,
    SheetInfo,
    Workbook,
    XmlAttributes,
    XmlPartHandler,
    format_serial_date,
    list_sheet_names,
    parse_xml_part,
    unescape_xlsx_text,
)
from tidemill.files.table_detection import detect_sheet_table
from tidemill.files.writers.xlsx_sheets import format_column_letters

SHEET_ROWS_MAX, SHEET_COLUMNS_MAX = 1_048_576, 16_384
SHEETS_IN_MESSAGE_MAX = 20
SHEET_SAMPLE_ROWS, SHEET_SAMPLE_COLUMNS_MAX, SHEET_SAMPLE_BYTES = 50, 1_000, 1 << 20  # to detect the header
INTEGER_DIGITS_MAX = 19  # longer integers may not fit 64 bits
_COLUMN_LETTERS = re.compile(r"[A-Z]{1,3}")
CellValue = str | int | float | bool


class SharedStringIndex(int):
    """The number of a shared string. Cells refer to it, so that they do not copy the string."""


@dataclass(slots=True)
class SheetRow:
    """The cells with values, by column from 0. A row that is too long has only the cells within the limit."""

    number: int
    cells: dict[int, CellValue] = field(default_factory=dict)
    size: int = 0
    is_long: bool = False

    def copy_with_strings_resolved(self, strings: SharedStrings, after: int) -> "SheetRow":
        cells = {at: strings[value] if type(value) is SharedStringIndex else value for at, value in self.cells.items()}
        return SheetRow(self.number + after, cells, self.size, self.is_long)


def read_sheet_rows(book: Workbook, path: str, after: int = 0) -> Iterator[SheetRow]:
    """Yield the rows of a sheet that are not empty. Row numbers continue after ``after``."""
    handler = _SheetHandler(book)
    for _ in parse_xml_part(book.iter_part_chunks(path), handler):
        yield from (row.copy_with_strings_resolved(book.strings, after) for row in handler.done if row.cells)
        handler.done.clear()


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
        elif name == "v" or name == "t":  # noqa: PLR1714  runs for every cell
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
                raise InvalidInput(f"A cell in row {self._row.number} is longer than {self._book.max_text} characters")

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
                f"Invalid row number {row_number} after row {self._row.number}. A sheet ends at XFD{SHEET_ROWS_MAX}."
            )
        return number

    def _start_cell(self, attributes: XmlAttributes) -> None:
        self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
        reference = attributes.get("r")
        column = self._column + 1 if reference is None else self._parse_column(reference)
        if not self._column < column < SHEET_COLUMNS_MAX:
            raise InvalidInput(
                f"Invalid cell {reference} in row {self._row.number}. A sheet ends at XFD{SHEET_ROWS_MAX}."
            )
        self._column = column

    def _parse_column(self, reference: str) -> int:
        """Return the column of a cell reference; the column letters are cached."""
        letters = reference.rstrip("0123456789")
        digits = reference[len(letters) :]
        if digits != self._digits:
            raise InvalidInput(
                f"Invalid cell {reference} in row {self._row.number}. A sheet ends at XFD{SHEET_ROWS_MAX}."
            )
        column = self._columns.get(letters)
        if column is None:
            column = parse_column_letters(letters) if _COLUMN_LETTERS.fullmatch(letters) else SHEET_COLUMNS_MAX
            self._columns[letters] = column
        return column

    def _convert_value(self, text: str) -> CellValue:
        kind = self._kind
        if kind == "s":
            is_number = text.isascii() and text.isdecimal() and len(text) < INTEGER_DIGITS_MAX
            return SharedStringIndex(text if is_number else -1)
        if kind == "n":
            return self._convert_number(text)
        return text in ("1", "true") if kind == "b" else unescape_xlsx_text(text)

    def _convert_number(self, text: str) -> CellValue:
        """Return a number as an integer or a float, or as a date if its style is a date format."""
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


def _take_sample(rows: Iterator[SheetRow]) -> list[SheetRow]:
    """Return the first rows, up to a limit of their number and size."""
    head: list[SheetRow] = []
    for row in islice(rows, SHEET_SAMPLE_ROWS):
        head.append(row)
        if sum(each.size for each in head) > SHEET_SAMPLE_BYTES:
            break
    return head


class XlsxReader(RecordReader):
    """Reads a sheet. A checkpoint is the number of the last row; a resumed read skips the rows before it.

    Continuation sheets, such as "Rows 2" after "Rows", belong to the same table, and row numbers continue.
    """

    columns: list[str]

    def __init__(
        self,
        file: BinaryIO,
        checkpoint: Checkpoint,
        *,
        layout: FileLayout,
        max_row_bytes: int,
        max_bytes: int,
    ) -> None:
        """Options of the layout that are not set are detected from the first rows, and then part of ``layout``."""
        self._limit = max_row_bytes
        sheet = layout.sheet
        self._book = Workbook(file, max_bytes=max_bytes, max_text=max_row_bytes)
        try:
            rows = read_sheet_rows(self._book, self._book.select_sheet(sheet).path)
            head = _take_sample(rows)
            self.layout = self._detect_table(head, layout)
            skipped, self._has_header = self.layout.skip_lines or 0, self.layout.header is not False
            self._rows = (row for row in chain(head, rows) if row.number > skipped)
            self._first = self._read_first_row_and_set_columns()
            self._further = self._find_continuation_sheets() if sheet is None else []
        except BaseException:
            self._book.close()
            raise
        self.first_line = self._first.number + int(self._has_header)
        super().__init__(checkpoint)

    def close(self) -> None:
        self._book.close()

    def _detect_table(self, head: list[SheetRow], layout: FileLayout) -> FileLayout:
        """Return the layout with the header and the text before it that the first rows of the sheet show."""
        known = [row for row in head if not row.is_long and row.number > (layout.skip_lines or 0)]
        width = max((max(row.cells) + 1 for row in known), default=0)
        if not known or width > SHEET_SAMPLE_COLUMNS_MAX:
            return layout
        rows = [SampleRow(row.number - 1, 1, tuple(str(row.cells.get(at, "")) for at in range(width))) for row in known]
        table = detect_sheet_table(rows, layout)
        self.findings = tuple(table.findings)
        return FileLayout.from_json(layout.to_json() | table.options)

    def _read_first_row_and_set_columns(self) -> SheetRow:
        """Set the columns, and return the last row of the header, or the first row if there is no header."""
        first = self._read_head_row()
        if not self._has_header:
            self.columns = generate_column_names(max(first.cells) + 1)
            return first
        rows = [first, *(self._read_head_row() for _ in range(1, self.layout.header_rows or 1))]
        width = max(max(row.cells) + 1 for row in rows)
        names = [[str(row.cells.get(at, "")) for at in range(width)] for row in rows]
        self.columns = derive_column_names(join_header_rows(names))
        return rows[-1]

    def _read_head_row(self) -> SheetRow:
        row = next(self._rows, None)
        if row is None:
            raise InvalidInput("The sheet is empty. It must begin with a header.")
        if row.is_long:
            raise InvalidInput(f"The header in row {row.number} is longer than {self._limit} bytes")
        return row

    def _iter_records(self, checkpoint: Checkpoint) -> Iterator[EncodedRecord]:
        before = checkpoint.get("sheet_row", 0)
        if not self._has_header and self._first.number > before:
            yield self._make_record(self._first)
        for row in self._iter_all_rows():
            if row.number > before:
                yield self._make_record(row)

    def _iter_all_rows(self) -> Iterator[SheetRow]:
        """Yield the rows of all sheets, without the headers of the continuation sheets."""
        last = self._first.number
        for row in self._rows:
            yield row
            last = row.number
        for sheet in self._further:
            for row in islice(read_sheet_rows(self._book, sheet.path, last), 1, None):
                yield row
                last = row.number

    def _find_continuation_sheets(self) -> list[SheetInfo]:
        """Return the continuation sheets of the first sheet; InvalidInput if other sheets have rows."""
        begin, *others = self._book.sheets
        shown = [one for one in others if not one.is_hidden]
        rows = {path: next(read_sheet_rows(self._book, path), None) for path in {one.path for one in shown}}
        first = {one: rows[one.path] for one in shown}
        filled = {one: row.cells for one, row in first.items() if row is not None}
        names = [f"{begin.name} {number}" for number in range(2, len(filled) + 2)]
        is_same = self._has_header and all(cells == self._first.cells for cells in filled.values())
        if filled and not (is_same and [one.name for one in filled] == names):
            listed = list_sheet_names([one.name for one in (begin, *filled)])
            raise InvalidInput(f"The workbook has rows in several sheets: {listed}. Select one with the sheet option.")
        return list(filled)

    def _make_record(self, row: SheetRow) -> EncodedRecord:
        checkpoint, width = {"sheet_row": row.number}, len(self.columns)
        values = dict.fromkeys(self.columns) | {self.columns[at]: v for at, v in row.cells.items() if at < width}
        data = _encode_json(values)
        reason = None
        if (last := max(row.cells)) >= width:
            end = format_column_letters(width - 1)
            reason = f"Row has a cell in column {format_column_letters(last)}, but the header ends at column {end}"
        elif row.is_long or len(data) > self._limit:
            reason = f"Row is longer than {self._limit} bytes"
        elif _JSON_ESCAPED_NUL in data.replace(b"\\\\", b""):
            reason = "Row contains a NUL character, which PostgreSQL cannot store"
        if reason is None:
            return EncodedRecord(data, row.number, checkpoint)
        text = ", ".join(str(value) for _, value in sorted(row.cells.items())).replace("\x00", "\ufffd")
        defect = InputDefect(line=row.number, code="invalid", reason=reason, value=text[:200])
        return EncodedRecord(_encode_json(text[: 64 * 1024]), row.number, checkpoint, defect)
