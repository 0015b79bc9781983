"""Comma-separated values with a header: each record is an object of strings."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from tidemill.connectors.records import InputRecord, Lines, defective
from tidemill.domain.errors import InvalidInput

_BOM = b"\xef\xbb\xbf"
_UNFINISHED = "unexpected end of data"  # what the parser says of a quote that is not closed yet


@dataclass(slots=True)
class _Parsed:
    """A record's text, the line it begins on, and its fields or what is wrong with it."""

    text: str
    line: int
    fields: list[str]
    problem: str | None = None


class CsvSource:
    """A checkpoint is the offset and number of the line that comes next, and the header."""

    def __init__(self, file: BinaryIO, *, max_row_bytes: int, delimiter: str = ",") -> None:
        self._file = file
        self._limit = max_row_bytes
        self._delimiter = delimiter

    def close(self) -> None:
        self._file.close()

    def records(self, checkpoint: dict[str, Any]) -> Iterator[InputRecord]:
        csv.field_size_limit(max(self._limit, csv.field_size_limit()))
        lines = Lines(self._file, self._limit, checkpoint.get("offset", 0), checkpoint.get("line", 0))
        header: list[str] | None = checkpoint.get("header")
        if header is None:
            header = self._header(self._next(lines))
        while (record := self._next(lines)) is not None:
            here = {"offset": lines.offset, "line": lines.number, "header": header}
            problem = record.problem or _problem(record, header)
            if problem is not None:
                yield defective(record.text, record.line, problem, here)
            elif record.fields:
                yield InputRecord(msgspec.json.encode(dict(zip(header, record.fields, strict=True))), here)

    def _next(self, lines: Lines) -> _Parsed | None:
        """The next record, over as many lines as its quotes span; None at the end."""
        line = next(lines, None)
        if line is None:
            return None
        number, behind = lines.number, (lines.offset, lines.number)
        parts = [_text(line.removeprefix(_BOM) if number == 1 else line)]
        size, quotes = len(line), line.count(b'"')
        while not lines.was_cut and size <= self._limit:
            # With an odd number of quotes one is open: parsing again at every line would be quadratic.
            record = self._parse("".join(parts), number) if quotes % 2 == 0 or len(parts) == 1 else None
            if record is not None:
                return record
            line = next(lines, None)
            if line is None:  # what follows is not part of this record: it is read again, line by line
                lines.go_back(*behind)
                return _Parsed(parts[0], number, [], "a quote is never closed")
            parts.append(_text(line))
            size, quotes = size + len(line), quotes + line.count(b'"')
        return _Parsed("".join(parts), number, [], f"longer than {self._limit} bytes")

    def _parse(self, text: str, number: int) -> _Parsed | None:
        """A record, or None when a quote is still open at the end of the text."""
        try:
            return _Parsed(text, number, next(csv.reader([text], delimiter=self._delimiter, strict=True), []))
        except csv.Error as error:
            if str(error) == _UNFINISHED:
                return None
        try:
            return _Parsed(text, number, next(csv.reader([text], delimiter=self._delimiter), []))
        except csv.Error as error:
            return _Parsed(text, number, [], str(error))

    def _header(self, record: _Parsed | None) -> list[str]:
        header = [name.strip() for name in record.fields] if record else []
        problem = record and (record.problem or _problem(record, header))
        if problem:
            raise InvalidInput(f"the header cannot be read: {problem}")
        if not header:
            raise InvalidInput("the file is empty: a CSV file begins with a header")
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice or "" in header:
            raise InvalidInput(f"the header has columns without a name or twice: {twice or ['']}")
        return header


def _problem(record: _Parsed, header: list[str]) -> str | None:
    if not record.fields:
        return None
    if "\x00" in record.text:
        return "a NUL character cannot be stored"
    try:
        record.text.encode()
    except UnicodeEncodeError:
        return "not UTF-8"
    if len(record.fields) != len(header):
        return f"{len(record.fields)} fields where the header has {len(header)}"
    return None


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="surrogateescape")
