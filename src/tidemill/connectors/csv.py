"""Comma-separated values with a header: each record is an object of strings."""

import csv
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

from tidemill.connectors.records import InputRecord, Lines, defective
from tidemill.domain.errors import InvalidInput


class CsvSource:
    """A checkpoint is the offset and number of the line that comes next, and the header."""

    def __init__(self, file: BinaryIO, *, max_row_bytes: int, delimiter: str = ",") -> None:
        self._file = file
        self._max_row_bytes = max_row_bytes
        self._delimiter = delimiter

    def records(self, checkpoint: dict[str, Any]) -> Iterator[InputRecord]:
        lines = Lines(self._file, self._max_row_bytes, checkpoint.get("offset", 0), checkpoint.get("line", 0))
        csv.field_size_limit(self._max_row_bytes)
        rows = csv.reader(_text(lines), delimiter=self._delimiter)
        header = checkpoint.get("header") or self._header(rows)
        while True:
            first = lines.number + 1
            problem: str | None
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as error:
                row, problem = [], str(error)
            else:
                problem = self._problem(row, header, lines)
            here = {"offset": lines.offset, "line": lines.number, "header": header}
            if problem is not None:
                yield defective(self._delimiter.join(row), first, problem, here)
            elif row:
                yield InputRecord(msgspec.json.encode(dict(zip(header, row, strict=True))), here)

    def _header(self, rows: Iterator[list[str]]) -> list[str]:
        header = [name.strip().removeprefix("\ufeff") for name in next(rows, [])]
        if not header:
            raise InvalidInput("the file is empty: a CSV file begins with a header")
        twice = sorted({name for name in header if header.count(name) > 1})
        if twice or "" in header:
            raise InvalidInput(f"the header has columns without a name or twice: {twice or ['']}")
        return header

    def _problem(self, row: list[str], header: list[str], lines: Lines) -> str | None:
        if not row:
            return None
        if lines.was_cut:
            return f"a line is longer than {self._max_row_bytes} bytes"
        text = "".join(row)
        if "\x00" in text:
            return "a NUL character cannot be stored"
        if not text.isprintable() and any("\udc80" <= char <= "\udcff" for char in text):
            return "not UTF-8"
        if len(row) != len(header):
            return f"{len(row)} fields where the header has {len(header)}"
        return None


def _text(lines: Lines) -> Iterator[str]:
    for line in lines:
        yield line.decode("utf-8", errors="surrogateescape")
