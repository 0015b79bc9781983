"""Reads CSV: plain lines in bulk, quoted lines one by one. Each row becomes an object of strings."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint
from tidemill.files.byte_streams import ByteStream, LineBuffer
from tidemill.files.formats.block_reader import BlockBuilder, BlockReader
from tidemill.files.text_encoding import has_control_bytes

_UNCLOSED_QUOTE_ERROR = "unexpected end of data"  # the parser's error for an open quote
_CSV_FIELD_PATTERN = (
    r"(?:^|(?<={delimiter}))({quote}[^{quote}]*(?:{quote}{quote}[^{quote}]*)*{quote}|[^{delimiter}{quote}]*)"
    r"(?={delimiter}|$)"
)
_encode_json = msgspec.json.Encoder().encode
FILE_COLUMNS_MAX = 16_384  # as in a workbook
DUPLICATE_NAMES_IN_MESSAGE_MAX = 20


@dataclass(slots=True)
class CsvRecord:
    """A row, the number of lines it spans, and its fields or its problem."""

    raw: bytes
    span: int
    fields: list[str]
    problem: str | None = None


class CsvDialect:
    """The delimiter and quote character of a CSV file. Without ``quote``, no character quotes."""

    def __init__(self, delimiter: str = ",", quote: str | None = '"', *, keep_empty: bool = False) -> None:
        """``keep_empty``: an unquoted empty field is null, and a quoted one is an empty string."""
        self.keep_empty = keep_empty
        self._quoted = re.compile(
            _CSV_FIELD_PATTERN.format(quote=re.escape(quote or "\0"), delimiter=re.escape(delimiter))
        )
        self.delimiter = delimiter.encode()
        self.quote = quote.encode() if quote else None
        quoting = csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE
        self._options: dict[str, Any] = {"delimiter": delimiter, "quotechar": quote or None, "quoting": quoting}

    def read_rows(self, lines: Iterator[str] | list[str], *, strict: bool = True) -> Iterator[list[str]]:
        return csv.reader(lines, strict=strict, **self._options)

    def replace_unquoted_empty_by_none(self, text: str, fields: list[str]) -> list[str | None]:
        """Return the fields of a row, with None for empty fields without quotes."""
        if not self.keep_empty or "" not in fields:
            return list(fields)
        if self.quote is None or 2 * self.quote.decode() not in text:
            return [field or None for field in fields]
        tokens = self._quoted.findall(text.rstrip("\r\n"))
        if len(tokens) != len(fields):  # the row was parsed leniently
            return [field or None for field in fields]
        return [field or ("" if token else None) for field, token in zip(fields, tokens, strict=True)]

    def peek_record(self, lines: LineBuffer) -> CsvRecord | None:
        """Return the next row, which can span several lines, without consuming it; None at the end."""
        first = lines.peek_line(0)
        if first is None:
            return None
        if len(first) > lines.limit:
            return CsvRecord(first, 1, [], f"Row is longer than {lines.limit} bytes")
        raw: list[bytes] = []
        try:
            fields = next(self.read_rows(_peek_lines_within_limit(lines, raw)))
        except csv.Error as error:
            return self._parse_malformed(first, raw, lines, str(error))
        return CsvRecord(b"\n".join(raw), len(raw), fields)

    def _parse_malformed(self, first: bytes, raw: list[bytes], lines: LineBuffer, error: str) -> CsvRecord:
        """Parse a single line leniently. A row of several lines is an error, as it would include the rows after it."""
        if error == _UNCLOSED_QUOTE_ERROR:
            is_at_end = lines.peek_line(len(raw)) is None
            unclosed = "Row has an unclosed quote"
            too_long = f"Row is longer than {lines.limit} bytes or has an unclosed quote"
            return CsvRecord(first, 1, [], unclosed if is_at_end else too_long)
        if len(raw) > 1:
            return CsvRecord(first, 1, [], "Row has a misplaced quote")
        try:
            return CsvRecord(first, 1, next(self.read_rows([_decode_line(first)], strict=False), []))
        except csv.Error as problem:
            is_torn = "new-line" in str(problem)
            reason = "Row has a carriage return in an unquoted field" if is_torn else f"Row is not valid CSV: {problem}"
            return CsvRecord(first, 1, [], reason)


class CsvToJsonConverter:
    """Converts lines with one row each to JSON objects, all or none."""

    def __init__(self, columns: list[str], dialect: CsvDialect) -> None:
        self._columns = columns
        self._dialect = dialect
        names = [_encode_json(name).decode().replace("%", "%%") for name in columns]
        form = "{" + ",".join(f'{name}:"%s"' for name in names) + "}"
        self._form, self._text_form = form.encode().__mod__, form.__mod__
        self._marks = form.count('"')
        controls = set(range(32)) - {*b"\r\n", *dialect.delimiter}
        self._escaped = bytes(controls) + b"\\"
        self._quoting = self._escaped + b'"' + (dialect.quote or b"")

    def convert_lines(self, lines: list[bytes]) -> list[bytes] | None:
        """Return the rows; None unless every line is a valid row."""
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
            return self._convert_unquoted_lines(lines)
        return self._convert_quoted_lines(text, is_plain=len(data.translate(None, self._escaped)) == len(data))

    def _convert_unquoted_lines(self, lines: list[bytes]) -> list[bytes] | None:
        """Convert lines without quotes and without characters that JSON escapes."""
        delimiter = self._dialect.delimiter
        rows = [line.split(delimiter) for line in lines]
        if set(map(len, rows)) != {len(self._columns)}:
            return None
        return list(map(self._form, map(tuple, rows)))

    def _convert_quoted_lines(self, text: str, *, is_plain: bool) -> list[bytes] | None:
        lines, columns = text.split("\n"), self._columns
        try:
            rows = list(self._dialect.read_rows(lines))
        except csv.Error:
            return None
        if len(rows) != len(lines) or set(map(len, rows)) != {len(columns)}:
            return None
        if self._dialect.keep_empty:
            nullable_rows = map(self._dialect.replace_unquoted_empty_by_none, lines, rows)
            return [_encode_json(dict(zip(columns, row, strict=True))) for row in nullable_rows]
        if is_plain:
            joined = "\n".join(map(self._text_form, map(tuple, rows)))
            if joined.count('"') == len(rows) * self._marks:  # no value contains a quote
                return joined.encode().split(b"\n")
        return [_encode_json(dict(zip(columns, row, strict=True))) for row in rows]

    def convert_record(self, record: CsvRecord) -> bytes:
        fields = self._dialect.replace_unquoted_empty_by_none(_decode_line(record.raw), record.fields)
        return _encode_json(dict(zip(self._columns, fields, strict=True)))


def check_column_count(count: int) -> None:
    if count > FILE_COLUMNS_MAX:
        raise InvalidInput(f"The file has {count:,} columns. At most {FILE_COLUMNS_MAX:,} are allowed.")


def parse_header_names(names: list[str]) -> list[str]:
    """Return the trimmed column names; InvalidInput if a name is empty or occurs twice, or if there are too many."""
    check_column_count(len(names))
    header = [name.strip() for name in names]
    seen: set[str] = set()
    twice = sorted({name for name in header if name in seen or seen.add(name)})  # type: ignore[func-returns-value]
    if "" in header:
        raise InvalidInput(f"Column {header.index('') + 1} in the header has no name. Name every column.")
    if twice:
        names_text = ", ".join(f'"{name}"' for name in twice[:DUPLICATE_NAMES_IN_MESSAGE_MAX])
        raise InvalidInput(f"Duplicate column names in the header: {names_text}. Use each name once.")
    return header


def _peek_lines_within_limit(lines: LineBuffer, raw: list[bytes]) -> Iterator[str]:
    """Yield lines until their total size exceeds the limit of a row."""
    size = 0
    while (line := lines.peek_line(len(raw))) is not None and size + len(line) <= lines.limit:
        size += len(line) + 1
        raw.append(line)
        yield _decode_line(line) + "\n"


def _decode_line(line: bytes) -> str:
    return line.decode("utf-8", errors="surrogateescape")


CSV_FALLBACK_CHUNK_LINES = (64, 8)  # smaller chunks that are tried in bulk after a larger one failed


class CsvReader(BlockReader):
    """Reads CSV. A checkpoint is the offset and number of the next line; the header is always read again."""

    columns: list[str]

    def __init__(
        self,
        stream: ByteStream,
        checkpoint: Checkpoint,
        *,
        max_row_bytes: int,
        dialect: CsvDialect | None = None,
        header: bool = True,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(checkpoint)
        csv.field_size_limit(max(max_row_bytes, csv.field_size_limit()))
        self._stream = stream
        self._encoding = encoding
        self._dialect = dialect or CsvDialect()
        self._lines = LineBuffer(stream, max_row_bytes)
        self.columns = self._read_header() if header else self._generate_column_names()
        self.first_line = self._lines.number + 1
        self._rows = CsvToJsonConverter(self.columns, self._dialect)
        if "offset" in checkpoint:
            self._lines = LineBuffer(stream, max_row_bytes, checkpoint["offset"], checkpoint["line"])

    def close(self) -> None:
        self._stream.close()

    def _get_checkpoint(self) -> Checkpoint:
        return {"offset": self._lines.offset, "line": self._lines.number}

    def _read_into(self, draft: BlockBuilder) -> bool:
        lines = self._lines.peek_lines(draft.remaining_rows, draft.left)
        self._add_lines(draft, lines, CSV_FALLBACK_CHUNK_LINES)
        return bool(lines)

    def _add_lines(self, draft: BlockBuilder, lines: list[bytes], chunk_sizes: tuple[int, ...]) -> None:
        """Add the lines in bulk if possible, else in smaller chunks, else one by one."""
        if not lines or self._add_lines_fast(draft, lines):
            return
        end = self._lines.number + len(lines)
        while (left := end - self._lines.number) > 0 and draft.remaining_rows:
            if chunk_sizes:
                self._add_lines(draft, lines[-left:][: min(chunk_sizes[0], draft.remaining_rows)], chunk_sizes[1:])
            else:
                self._add_next_record(draft)

    def _add_lines_fast(self, draft: BlockBuilder, lines: list[bytes]) -> bool:
        """Add the lines in bulk; return False if at least one needs the full parser."""
        if max(map(len, lines)) > self._lines.limit:
            return False
        records = self._rows.convert_lines(lines)
        if records is None:
            return False
        draft.add_single_line_records(records, self._lines.number + 1)
        self._lines.consume_lines(len(lines))
        return True

    def _add_next_record(self, draft: BlockBuilder) -> None:
        record, line = self._dialect.peek_record(self._lines), self._lines.number + 1
        if record is None:
            return
        problem = record.problem or self._find_character_problem(record) or self._find_field_count_problem(record)
        if problem is not None:
            draft.add_defective(record.raw, line, problem, **self._build_byte_offset_kwargs_if_invalid(record))
        elif record.fields:
            draft.add_record(self._rows.convert_record(record), line)
        self._lines.consume_lines(record.span)

    def _find_character_problem(self, record: CsvRecord) -> str | None:
        if b"\x00" in record.raw:
            return "Row contains a NUL character, which PostgreSQL cannot store"
        if self._build_byte_offset_kwargs_if_invalid(record):
            return f"Row is not valid {self._encoding.upper()}"
        return None

    def _is_binary(self, record: CsvRecord) -> bool:
        """Return whether the row has bytes that do not occur in text."""
        return bool(self._build_byte_offset_kwargs_if_invalid(record)) or has_control_bytes(record.raw)

    def _find_field_count_problem(self, record: CsvRecord) -> str | None:
        if len(record.fields) in (0, len(self.columns)):
            return None
        return f"Row has {len(record.fields)} fields, but the header has {len(self.columns)}"

    def _build_byte_offset_kwargs_if_invalid(self, record: CsvRecord) -> dict[str, int]:
        try:
            record.raw.decode()
        except UnicodeDecodeError as error:
            return {"byte_offset": self._stream.map_to_source_offset(self._lines.offset + error.start)}
        return {}

    def _read_header(self) -> list[str]:
        header = self._peek_first_record()
        self._lines.consume_lines(header.span)
        return parse_header_names(header.fields)

    def _generate_column_names(self) -> list[str]:
        count = len(self._peek_first_record().fields)
        check_column_count(count)
        return [f"column_{n}" for n in range(1, count + 1)]

    def _peek_first_record(self) -> CsvRecord:
        """Return the first row that is not empty."""
        while (record := self._dialect.peek_record(self._lines)) is not None:
            problem = record.problem or self._find_character_problem(record)
            if problem:
                hint = ". The file may be binary or compressed." if self._is_binary(record) else ""
                raise InvalidInput(f"Cannot read the header as CSV: {problem}{hint}")
            if record.fields:
                return record
            self._lines.consume_lines(record.span)
        self._lines.peek_lines(1)  # raises if the file cannot be read
        raise InvalidInput("The file is empty. A CSV file must begin with a header.")
