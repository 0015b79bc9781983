"""The rows of a sheet."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tidemill.connectors.xlsx_book import Book, Strings
from tidemill.connectors.xlsx_dates import as_date
from tidemill.connectors.xlsx_xml import Attributes, Part, parse, unescape
from tidemill.domain.errors import InvalidInput

ROWS_MAX, COLUMNS_MAX = 1_048_576, 16_384
DIGITS_MAX = 19  # of a whole number that is one everywhere
_LETTERS = re.compile(r"[A-Z]{1,3}")
Value = str | int | float | bool


class Shared(int):
    """The number of a shared string: a million cells may have the same, and none of them needs a copy yet."""


@dataclass(slots=True)
class Row:
    """The cells that hold something, by their column from 0. Of a row that is too long, those before the end of it."""

    number: int
    cells: dict[int, Value] = field(default_factory=dict)
    size: int = 0
    is_long: bool = False

    def with_texts(self, strings: Strings, after: int) -> "Row":
        cells = {at: strings[value] if type(value) is Shared else value for at, value in self.cells.items()}
        return Row(self.number + after, cells, self.size, self.is_long)


def rows(book: Book, path: str, after: int = 0) -> Iterator[Row]:
    """The rows of a sheet that hold something, counted on from others."""
    hearing = _Sheet(book)
    for _ in parse(book.pieces(path), hearing):
        yield from (row.with_texts(book.strings, after) for row in hearing.done if row.cells)
        hearing.done.clear()


class _Sheet(Part):
    def __init__(self, book: Book) -> None:
        self.done: list[Row] = []
        self._book = book
        self._shown = {str(style): shown for style, shown in enumerate(book.shown)}
        self._row = Row(0)
        self._column = -1
        self._digits = ""
        self._kind = self._style = ""
        self._text: list[str] = []
        self._size = 0
        self._is_value = self._is_aloud = False
        self._columns: dict[str, int] = {}

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "c":
            self._cell(attributes)
        elif name == "v" or name == "t":  # noqa: PLR1714  heard for every cell
            self._is_value = not self._is_aloud
        elif name == "row":
            self._begin(attributes.get("r"))
        elif name == "rPh":
            self._is_aloud = True

    def end(self, name: str) -> None:
        if name == "v" or name == "t":  # noqa: PLR1714
            self._is_value = False
        elif name == "c":
            if self._text:
                self._add(self._value("".join(self._text)))
                self._text, self._size = [], 0
        elif name == "row":
            self.done.append(self._row)
        elif name == "rPh":
            self._is_aloud = False

    def text(self, data: str) -> None:
        if self._is_value:
            self._text.append(data)
            self._size += len(data)
            if self._size > self._book.max_text:
                raise InvalidInput(f"a cell of row {self._row.number} has more than {self._book.max_text} characters")

    def _add(self, value: Value) -> None:
        row = self._row
        row.size += self._book.strings.size(value) if type(value) is Shared else self._size
        row.is_long = row.is_long or row.size > self._book.max_text
        if not row.is_long or not row.cells:
            row.cells[self._column] = value

    def _begin(self, said: str | None) -> None:
        self._digits = said or str(self._row.number + 1)
        self._row, self._column = Row(self._checked(self._digits)), -1

    def _checked(self, said: str) -> int:
        number = int(said) if said.isascii() and said.isdecimal() and len(said) < 8 else 0  # noqa: PLR2004
        if not self._row.number < number <= ROWS_MAX:
            raise InvalidInput(f"row {said} cannot be behind row {self._row.number}: a sheet ends at XFD{ROWS_MAX}")
        return number

    def _cell(self, attributes: Attributes) -> None:
        self._kind, self._style = attributes.get("t", "n"), attributes.get("s", "")
        reference = attributes.get("r")
        column = self._column + 1 if reference is None else self._column_of(reference)
        if not self._column < column < COLUMNS_MAX:
            raise InvalidInput(f"cell {reference} of row {self._row.number} cannot be: a sheet ends at XFD{ROWS_MAX}")
        self._column = column

    def _column_of(self, reference: str) -> int:
        """Letters are looked up: there are few of them, and many cells."""
        letters = reference.rstrip("0123456789")
        digits = reference[len(letters) :]
        if digits != self._digits:
            raise InvalidInput(f"cell {reference} cannot be in row {self._row.number}: a sheet ends at XFD{ROWS_MAX}")
        found = self._columns.get(letters)
        if found is None:
            found = column_number(letters) if _LETTERS.fullmatch(letters) else COLUMNS_MAX
            self._columns[letters] = found
        return found

    def _value(self, text: str) -> Value:
        kind = self._kind
        if kind == "s":
            return Shared(text if text.isascii() and text.isdecimal() else -1)
        if kind == "n":
            return self._number(text)
        return text in ("1", "true") if kind == "b" else unescape(text)

    def _number(self, text: str) -> Value:
        """Whole numbers stay whole; those that a style shows as dates are dates."""
        try:
            number = float(text)
        except ValueError:
            return text
        if not math.isfinite(number):
            return text
        shown = self._shown.get(self._style)
        date = shown and as_date(number, shown, is_1904=self._book.is_1904)
        if date:
            return date
        if len(text) < DIGITS_MAX and text.lstrip("-").isdecimal():
            return int(text)
        return int(number) if number.is_integer() and abs(number) < 1 << 53 else number


def column_number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - 64
    return number - 1
