"""Rows of a Python function, as COPY would deliver them."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from typing import Any

from tidemill.domain.form import Column, Feed
from tidemill.domain.outcome import Fail
from tidemill.store.json import encode

_SPECIAL = frozenset(',"\r\n')


class Rows:
    """What the first row has, or what is declared, is what all have: dicts by name, tuples by place."""

    def __init__(self, feed: Feed, columns: Sequence[str]) -> None:
        self.count = 0
        self._columns = tuple(columns)
        self._feed = feed
        self._has_begun = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(Column(name) for name in self._columns)

    def add(self, row: Any) -> bytes:
        """The bytes of a row; before the first one, the header."""
        if not self._columns and isinstance(row, Mapping):
            self._columns = tuple(str(name) for name in row)
            if not self._columns:
                raise self._wrong("has no columns")
        cells = self._cells(row)
        self.count += 1
        head = self.begin()
        if self._feed == "ndjson":
            return head + encode(dict(zip(self._columns, cells, strict=True))) + b"\n"
        return head + _line(cells)

    def begin(self) -> bytes:
        """The header, unless it was there; of no rows at all, it is the whole file."""
        if self._has_begun or self._feed == "ndjson" or not self._columns:
            return b""
        self._has_begun = True
        return _line(self._columns)

    def _cells(self, row: Any) -> Sequence[Any]:
        names = self._columns
        if isinstance(row, Mapping):
            if not row.keys() <= set(names):
                other = next(name for name in row if name not in names)
                raise self._wrong(f"has a column {other!r}, which the first one has not")
            return [row.get(name) for name in names]
        if isinstance(row, str | bytes) or not isinstance(row, Sequence):
            raise self._wrong(f"is {type(row).__name__}: a dict or a tuple is wanted")
        if not names:
            raise self._wrong("is a tuple: say what its columns are, with columns=… of the dataset")
        if len(row) != len(names):
            raise self._wrong(f"has {len(row)} values; there are {len(names)} columns")
        return row

    def _wrong(self, said: str) -> Fail:
        return Fail(f"row {self.count + 1} of the dataset's function {said}", code="invalid_rows")


def _line(cells: Sequence[Any]) -> bytes:
    return (",".join(map(_cell, cells)) + "\n").encode()


def _cell(value: Any) -> str:
    """As the server writes it: nothing for NULL, and quotes around an empty text."""
    if value is None:
        return ""
    text = _text(value)
    if not text or not _SPECIAL.isdisjoint(text) or text == "\\.":
        return '"' + text.replace('"', '""') + '"'
    return text


def _text(value: Any) -> str:
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
            return encode(value).decode()
        case _:
            return str(value)
