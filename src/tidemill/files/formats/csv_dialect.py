"""Parses the rows of a CSV dialect, and finds the cause if a row is malformed."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tidemill.files.formats.csv_salvage import salvage_fields
from tidemill.files.formats.csv_tokenizer import BLANKS, UNCLOSED_QUOTE_ERROR, CsvTokenizer
from tidemill.files.layout import BLANKS_DELIMITER

_CSV_FIELD_PATTERN = (
    r"(?:^|(?<={delimiter}))({quote}[^{quote}]*(?:{quote}{quote}[^{quote}]*)*{quote}|[^{delimiter}{quote}]*)"
    r"(?={delimiter}|$)"
)
UNCLOSED_QUOTE = "Row has an unclosed quote"
MISPLACED_QUOTE = "Row has a misplaced quote"


@dataclass(slots=True)
class CsvRecord:
    """A row, the number of lines it spans, and its fields or its problem."""

    raw: bytes
    span: int
    fields: list[str]
    problem: str | None = None
    is_misquoted: bool = False  # the problem is a quote, so that another reading can fit


class CsvDialect:
    """The delimiter and quote character of a CSV file. Without ``quote``, no character quotes."""

    def __init__(
        self, delimiter: str = ",", quote: str | None = '"', *, keep_empty: bool = False, escape: str = ""
    ) -> None:
        """``keep_empty``: an unquoted empty field is null, and a quoted one is an empty string."""
        self.keep_empty = keep_empty
        self.is_blank_delimited = delimiter == BLANKS_DELIMITER
        pattern = re.escape(quote or "\0"), (r"\s" if self.is_blank_delimited else re.escape(delimiter))
        self._quoted = re.compile(_CSV_FIELD_PATTERN.format(quote=pattern[0], delimiter=pattern[1]))
        self.delimiter = delimiter.encode()
        self.quote = quote.encode() if quote else None
        self.escape = escape
        self._tokenizer: CsvTokenizer | None = None
        if len(delimiter) > 1 or (escape and quote):
            separator = BLANKS if self.is_blank_delimited else re.compile(re.escape(delimiter))
            self._tokenizer = CsvTokenizer(separator, quote, escape)
        quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        self._options: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote or None, "quoting": quoting}

    def read_rows(self, lines: Iterator[str] | list[str], *, strict: bool = True) -> Iterator[list[str]]:
        if self._tokenizer is not None:
            return self._tokenizer.read_rows(iter(lines), strict=strict)
        return csv.reader(lines, strict=strict, **self._options)

    def replace_unquoted_empty_by_none(self, text: str, fields: list[str]) -> list[str | None]:
        """Return the fields of a row, with None for empty fields without quotes."""
        if not self.keep_empty or "" not in fields:
            return list(fields)
        if self.quote is None or 2 * self.quote.decode() not in text:
            return [field or None for field in fields]
        tokens = self._quoted.findall(text.rstrip("\r\n"))
        if len(tokens) != len(fields):  # the row was salvaged
            return [field or None for field in fields]
        return [field or ("" if token else None) for field, token in zip(fields, tokens, strict=True)]

    def list_spellings(self, fields: list[str]) -> list[bytes]:
        """Return the lines that spell a row: with quotes around no field, and around each field."""
        if self.is_blank_delimited:
            return []
        quote = (self.quote or b"").decode()
        plain, quoted = (
            self.delimiter.decode().join(mark + field + mark for field in fields).encode("utf-8", "surrogateescape")
            for mark in ("", quote)
        )
        return [plain, quoted] if quote else [plain]

    def salvage(self, text: str, count: int) -> list[str] | None:
        """Return the fields of a line with misplaced quotes, if only one reading has ``count`` fields.

        A line that ends within quotes is not salvaged: its last field can continue on the next line.
        """
        try:
            next(self.read_rows([text]), None)
        except csv.Error as error:
            if str(error) == UNCLOSED_QUOTE_ERROR:
                return None
        else:
            return None
        return self.find_reading(text, count)

    def find_reading(self, text: str, count: int) -> list[str] | None:
        """Return the fields of a complete row if only one reading has ``count`` fields."""
        if self.quote is None or self.is_blank_delimited or count < 2:  # noqa: PLR2004  one field has many readings
            return None
        return salvage_fields(text.rstrip("\r\n"), count, self.delimiter.decode(), self.quote.decode(), self.escape)

    def read_leniently(self, text: str, count: int) -> list[str]:
        """Return the fields of a row that may have misplaced quotes: the reading with ``count`` fields, if any."""
        try:
            rows = list(self.read_rows([f"{line}\n" for line in text.split("\n")]))
        except csv.Error:
            rows = []
        if len(rows) == 1:
            return rows[0]
        delimiter, line = self.delimiter.decode(), text.removesuffix("\r")
        return self.find_reading(line, count) or (line.split() if self.is_blank_delimited else line.split(delimiter))

    def read_line(self, text: str) -> list[str] | None:
        """Return the fields of a line that is a complete row; None if it is malformed."""
        try:
            return next(self.read_rows([text]), None)
        except csv.Error:
            return None


def decode_line(line: bytes) -> str:
    return line.decode("utf-8", errors="surrogateescape")
