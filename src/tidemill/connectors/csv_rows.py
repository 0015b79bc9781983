"""Rows of separated values: many at once where each is one plain line, one by one where not."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemill.connectors.lines import Lines
from tidemill.domain.errors import InvalidInput

_UNFINISHED = "unexpected end of data"  # what the parser says of a quote that is still open
_FIELD = (
    r"(?:^|(?<={delimiter}))({quote}[^{quote}]*(?:{quote}{quote}[^{quote}]*)*{quote}|[^{delimiter}{quote}]*)"
    r"(?={delimiter}|$)"
)
_encode = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Parsed:
    """A record, the number of lines it spans, and its fields or what is wrong with it."""

    raw: bytes
    span: int
    fields: list[str]
    problem: str | None = None


class Dialect:
    """How fields are told apart. Without ``quote`` nothing quotes."""

    def __init__(self, delimiter: str = ",", quote: str | None = '"', *, keep_empty: bool = False) -> None:
        """``keep_empty``: a field with nothing in it is no value, and only one in quotes is empty text."""
        self.keep_empty = keep_empty
        self._quoted = re.compile(_FIELD.format(quote=re.escape(quote or "\0"), delimiter=re.escape(delimiter)))
        self.delimiter = delimiter.encode()
        self.quote = quote.encode() if quote else None
        quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        self._options: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote or None, "quoting": quoting}

    def read(self, lines: Iterator[str] | list[str], *, strict: bool = True) -> Iterator[list[str]]:
        return csv.reader(lines, strict=strict, **self._options)

    def told_apart(self, text: str, fields: list[str]) -> list[str | None]:
        """The fields of a record, None for what has nothing in it, not even quotes."""
        if not self.keep_empty or "" not in fields:
            return list(fields)
        if self.quote is None or 2 * self.quote.decode() not in text:
            return [field or None for field in fields]
        tokens = self._quoted.findall(text.rstrip("\r\n"))
        if len(tokens) != len(fields):  # read with a kind eye
            return [field or None for field in fields]
        return [field or ("" if token else None) for field, token in zip(fields, tokens, strict=True)]

    def parse(self, lines: Lines) -> Parsed | None:
        """The next record, over as many lines as its quotes span; None at the end. Takes nothing."""
        first = lines.at(0)
        if first is None:
            return None
        if len(first) > lines.limit:
            return Parsed(first, 1, [], f"longer than {lines.limit} bytes")
        raw: list[bytes] = []
        try:
            fields = next(self.read(_feed(lines, raw)))
        except csv.Error as error:
            return self._mistaken(first, raw, lines, str(error))
        return Parsed(b"\n".join(raw), len(raw), fields)

    def _mistaken(self, first: bytes, raw: list[bytes], lines: Lines, error: str) -> Parsed:
        """One line may be read with a kind eye; what goes on over lines may not: it would swallow its neighbours."""
        if error == _UNFINISHED:
            is_at_end = lines.at(len(raw)) is None
            reason = "a quote is never closed"
            return Parsed(first, 1, [], reason if is_at_end else f"longer than {lines.limit} bytes, or {reason}")
        if len(raw) > 1:
            return Parsed(first, 1, [], "a quote is not closed before another one opens")
        try:
            return Parsed(first, 1, next(self.read([_text(first)], strict=False), []))
        except csv.Error as problem:
            is_torn = "new-line" in str(problem)
            return Parsed(first, 1, [], "a carriage return in a field without quotes" if is_torn else str(problem))


class Rows:
    """Turns lines that are a record each into objects, all of them or none."""

    def __init__(self, columns: list[str], dialect: Dialect) -> None:
        self._columns = columns
        self._dialect = dialect
        names = [_encode(name).decode().replace("%", "%%") for name in columns]
        form = "{" + ",".join(f'{name}:"%s"' for name in names) + "}"
        self._form, self._text_form = form.encode().__mod__, form.__mod__
        self._marks = form.count('"')
        controls = set(range(32)) - {*b"\r\n", *dialect.delimiter}
        self._escaped = bytes(controls) + b"\\"
        self._quoting = self._escaped + b'"' + (dialect.quote or b"")

    def encode(self, lines: list[bytes]) -> list[bytes] | None:
        """The records; None unless all are good, one to a line."""
        data = b"\n".join(lines)
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return None
        if b"\x00" in data or not all(lines):
            return None
        if b"\r" in data:
            lines = [line.removesuffix(b"\r") for line in lines]
            data = b"\n".join(lines)
            if b"\r" in data or not all(lines):
                return None
        if len(data.translate(None, self._quoting)) == len(data) and not self._dialect.keep_empty:
            return self._split(lines)
        return self._parse(text, is_plain=len(data.translate(None, self._escaped)) == len(data))

    def _split(self, lines: list[bytes]) -> list[bytes] | None:
        """Nothing is quoted and nothing has to be escaped."""
        delimiter = self._dialect.delimiter
        rows = [line.split(delimiter) for line in lines]
        if set(map(len, rows)) != {len(self._columns)}:
            return None
        return list(map(self._form, map(tuple, rows)))

    def _parse(self, text: str, *, is_plain: bool) -> list[bytes] | None:
        lines, columns = text.split("\n"), self._columns
        try:
            rows = list(self._dialect.read(lines))
        except csv.Error:
            return None
        if len(rows) != len(lines) or set(map(len, rows)) != {len(columns)}:
            return None
        if self._dialect.keep_empty:
            told = map(self._dialect.told_apart, lines, rows)
            return [_encode(dict(zip(columns, row, strict=True))) for row in told]
        if is_plain:
            together = "\n".join(map(self._text_form, map(tuple, rows)))
            if together.count('"') == len(rows) * self._marks:  # no value has a quote in it
                return together.encode().split(b"\n")
        return [_encode(dict(zip(columns, row, strict=True))) for row in rows]

    def encode_one(self, record: Parsed) -> bytes:
        fields = self._dialect.told_apart(_text(record.raw), record.fields)
        return _encode(dict(zip(self._columns, fields, strict=True)))


def checked_header(names: list[str]) -> list[str]:
    """The names of a header, trimmed; InvalidInput if some are missing or there twice."""
    header = [name.strip() for name in names]
    seen: set[str] = set()
    twice = sorted({name for name in header if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if twice or "" in header:
        raise InvalidInput(f"the header has columns without a name or twice: {twice or ['']}")
    return header


def _feed(lines: Lines, raw: list[bytes]) -> Iterator[str]:
    """Line after line, as long as they could be one record."""
    size = 0
    while (line := lines.at(len(raw))) is not None and size + len(line) <= lines.limit:
        size += len(line) + 1
        raw.append(line)
        yield _text(line) + "\n"


def _text(line: bytes) -> str:
    return line.decode("utf-8", errors="surrogateescape")
