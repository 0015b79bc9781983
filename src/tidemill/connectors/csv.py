"""Separated values: each record is an object of strings."""

import csv
from typing import Any

from tidemill.connectors.csv_rows import Dialect, Parsed, Rows, checked_header
from tidemill.connectors.encoding import has_controls
from tidemill.connectors.lines import Lines
from tidemill.connectors.records import BlockSource, Draft
from tidemill.connectors.stream import Stream
from tidemill.domain.errors import InvalidInput

PIECES = (64, 8)  # lines that are tried at once where a larger block has something odd in it


class CsvSource(BlockSource):
    """A checkpoint is the offset and number of the line that comes next. The header is read again."""

    columns: list[str]

    def __init__(
        self,
        stream: Stream,
        checkpoint: dict[str, Any],
        *,
        max_row_bytes: int,
        dialect: Dialect | None = None,
        header: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(checkpoint)
        csv.field_size_limit(max(max_row_bytes, csv.field_size_limit()))
        self._stream = stream
        self._encoding = encoding
        self._dialect = dialect or Dialect()
        self._lines = Lines(stream, max_row_bytes)
        self.columns = self._header() if header else self._numbered()
        self.first_line = self._lines.number + 1
        self._rows = Rows(self.columns, self._dialect)
        if "offset" in checkpoint:
            self._lines = Lines(stream, max_row_bytes, checkpoint["offset"], checkpoint["line"])

    def close(self) -> None:
        self._stream.close()

    def _place(self) -> dict[str, Any]:
        return {"offset": self._lines.offset, "line": self._lines.number}

    def _more(self, draft: Draft) -> bool:
        lines = self._lines.peek(draft.room, draft.left)
        self._add_some(draft, lines, PIECES)
        return bool(lines)

    def _add_some(self, draft: Draft, lines: list[bytes], pieces: tuple[int, ...]) -> None:
        """All at once if they are records without a doubt; else in pieces; what is left over, one by one."""
        if not lines or self._add_all(draft, lines):
            return
        end = self._lines.number + len(lines)
        while (left := end - self._lines.number) > 0 and draft.room:
            if pieces:
                self._add_some(draft, lines[-left:][: min(pieces[0], draft.room)], pieces[1:])
            else:
                self._add_one(draft)

    def _add_all(self, draft: Draft, lines: list[bytes]) -> bool:
        """Whether they were records without a doubt."""
        if max(map(len, lines)) > self._lines.limit:
            return False
        records = self._rows.encode(lines)
        if records is None:
            return False
        draft.extend(records, self._lines.number + 1)
        self._lines.take(len(lines))
        return True

    def _add_one(self, draft: Draft) -> None:
        record, line = self._dialect.parse(self._lines), self._lines.number + 1
        if record is None:
            return
        problem = record.problem or self._problem(record) or self._ragged(record)
        if problem is not None:
            draft.add_bad(record.raw, line, problem, **self._bad_byte(record))
        elif record.fields:
            draft.add(self._rows.encode_one(record), line)
        self._lines.take(record.span)

    def _problem(self, record: Parsed) -> str | None:
        if b"\x00" in record.raw:
            return "a NUL character cannot be stored"
        if self._bad_byte(record):
            return f"not {self._encoding.upper()}"
        return None

    def _is_strange(self, record: Parsed) -> bool:
        """Whether it has what no text has."""
        return bool(self._bad_byte(record)) or has_controls(record.raw)

    def _ragged(self, record: Parsed) -> str | None:
        if len(record.fields) in (0, len(self.columns)):
            return None
        return f"{len(record.fields)} fields where the header has {len(self.columns)}"

    def _bad_byte(self, record: Parsed) -> dict[str, int]:
        try:
            record.raw.decode()
        except UnicodeDecodeError as error:
            return {"byte_offset": self._stream.origin(self._lines.offset + error.start)}
        return {}

    def _header(self) -> list[str]:
        header = self._first()
        self._lines.take(header.span)
        return checked_header(header.fields)

    def _numbered(self) -> list[str]:
        return [f"column_{n}" for n in range(1, len(self._first().fields) + 1)]

    def _first(self) -> Parsed:
        """The first record that says something."""
        while (record := self._dialect.parse(self._lines)) is not None:
            problem = record.problem or self._problem(record)
            if problem:
                hint = "; the file may be binary, or packed" if self._is_strange(record) else ""
                raise InvalidInput(f"the header cannot be read as CSV: {problem}{hint}")
            if record.fields:
                return record
            self._lines.take(record.span)
        self._lines.peek(1)  # what could not be read at all says so
        raise InvalidInput("the file is empty: a CSV file begins with a header")
