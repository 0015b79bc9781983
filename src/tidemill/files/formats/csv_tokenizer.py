"""Splits CSV rows whose dialect the standard module cannot read: long or blank delimiters, and escaped quotes."""

import csv
import re
from collections.abc import Iterator

UNCLOSED_QUOTE_ERROR = "unexpected end of data"  # as the standard module reports an open quote
BLANKS = re.compile(r"[ \t]+")


class CsvTokenizer:
    """Reads rows as ``csv.reader`` does, with its errors.

    An escape character has an effect only within quotes, before a quote or before itself.
    """

    def __init__(self, delimiter: "re.Pattern[str]", quote: str | None, escape: str | None) -> None:
        self._delimiter = delimiter
        self._quote = quote
        marks = [re.escape(mark) for mark in (quote, escape) if mark]
        self._mark = re.compile("|".join(marks) or r"(?!)")
        self._escape = escape
        self._skips_blanks = delimiter is BLANKS

    def read_rows(self, lines: Iterator[str], *, strict: bool) -> Iterator[list[str]]:
        for line in lines:
            yield self._read_row(line, lines, strict=strict)

    def _read_row(self, line: str, lines: Iterator[str], *, strict: bool) -> list[str]:
        text, fields = line.removesuffix("\n"), list[str]()
        at, end = 0, _find_end(text)
        if self._skips_blanks:
            at = len(text) - len(text.lstrip(" \t"))
        if at >= end:
            return []
        while True:
            if self._quote and text.startswith(self._quote, at, end):
                value, text, at = self._read_quoted(text, at + 1, lines)
                end = _find_end(text)
                found = self._delimiter.match(text, at, end)
                if found is None and at < end:
                    if strict:
                        raise csv.Error("delimiter expected after quote")
                    found = self._delimiter.search(text, at, end)
                    value += text[at : found.start() if found else end]
            else:
                found = self._delimiter.search(text, at, end)
                value = text[at : found.start() if found else end]
                if "\r" in value:
                    raise csv.Error("new-line character seen in unquoted field")
            fields.append(value)
            if found is None or (self._skips_blanks and found.end() == end):
                return fields
            at = found.end()

    def _read_quoted(self, text: str, at: int, lines: Iterator[str]) -> tuple[str, str, int]:
        """Return the value, the line in which it ends, and the position after its closing quote."""
        parts: list[str] = []
        while True:
            mark = self._mark.search(text, at)
            if mark is None:
                parts += [text[at:], "\n"]
                following = next(lines, None)
                if following is None:
                    raise csv.Error(UNCLOSED_QUOTE_ERROR)
                text, at = following.removesuffix("\n"), 0
                continue
            parts.append(text[at : mark.start()])
            at, following = mark.end(), text[mark.end() : mark.end() + 1]
            is_escape = mark.group() == self._escape
            if following == self._quote or (is_escape and following == self._escape):
                parts.append(following)
                at += 1
            elif is_escape:
                parts.append(mark.group())
            else:
                return "".join(parts), text, at


def _find_end(text: str) -> int:
    """Return the end of a line without the carriage return of its line end."""
    return len(text) - text.endswith("\r")
