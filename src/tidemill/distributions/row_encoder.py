"""Encodes the rows of a dataset's function in the format of COPY."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from tidemill.core.file_format import CopyFormat, OutputColumn
from tidemill.core.outcome import Fail
from tidemill.store.jsonb import encode_json

_CSV_SPECIAL_CHARS = frozenset(',"\r\n')


class ProducedRowEncoder:
    """Encodes dicts and tuples. All rows have the columns that the dataset declares, or those of the first row."""

    def __init__(self, feed: CopyFormat, columns: Sequence[str]) -> None:
        self.count = 0
        self._columns = tuple(columns)
        self._feed = feed
        self._has_begun = False

    @property
    def columns(self) -> tuple[OutputColumn, ...]:
        return tuple(OutputColumn(name) for name in self._columns)

    def encode_row(self, row: Any) -> bytes:
        """The bytes of a row; before the first one, the header."""
        if not self._columns and isinstance(row, Mapping):
            self._columns = tuple(str(name) for name in row)
            if not self._columns:
                raise self._make_failure("has no columns")
        cells = self._extract_cells(row)
        self.count += 1
        head = self.encode_header()
        if self._feed == "ndjson":
            return head + encode_json(dict(zip(self._columns, cells, strict=True))) + b"\n"
        return head + _encode_csv_line(cells)

    def encode_header(self) -> bytes:
        """The header, unless it was written; without any rows it is the whole file."""
        if self._has_begun or self._feed == "ndjson" or not self._columns:
            return b""
        self._has_begun = True
        return _encode_csv_line(self._columns)

    def _extract_cells(self, row: Any) -> Sequence[Any]:
        names = self._columns
        if isinstance(row, Mapping):
            if not row.keys() <= set(names):
                other = next(name for name in row if name not in names)
                raise self._make_failure(f"has a column {other!r}, which the first one has not")
            return [row.get(name) for name in names]
        if isinstance(row, str | bytes) or not isinstance(row, Sequence):
            raise self._make_failure(f"is {type(row).__name__}: a dict or a tuple is wanted")
        if not names:
            raise self._make_failure("is a tuple: say what its columns are, with columns=… of the dataset")
        if len(row) != len(names):
            raise self._make_failure(f"has {len(row)} values; there are {len(names)} columns")
        return row

    def _make_failure(self, problem: str) -> Fail:
        return Fail(f"row {self.count + 1} of the dataset's function {problem}", code="invalid_rows")


def _encode_csv_line(cells: Sequence[Any]) -> bytes:
    return (",".join(map(_format_csv_cell, cells)) + "\n").encode()


def _format_csv_cell(value: Any) -> str:
    """A value as PostgreSQL writes it in CSV: nothing for NULL, and quotes around an empty text."""
    if value is None:
        return ""
    text = _format_value(value)
    if not text or not _CSV_SPECIAL_CHARS.isdisjoint(text) or text == "\\.":
        return '"' + text.replace('"', '""') + '"'
    return text


def _format_value(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case datetime() | date() | time():
            return value.isoformat()
        case bytes():
            return f"\\x{value.hex()}"
        case Mapping() | list() | tuple():
            return encode_json(value).decode()
        case _:
            return str(value)
