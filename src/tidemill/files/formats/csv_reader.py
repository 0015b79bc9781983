"""Reads CSV: plain lines in bulk, quoted lines one by one. Each row becomes an object of strings."""

import csv
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import Checkpoint
from tidemill.files.byte_streams import ByteStream, LineBuffer
from tidemill.files.formats.block_reader import BlockBuilder, BlockReader
from tidemill.files.formats.column_names import (
    derive_column_names,
    drop_unused_blank_names,
    generate_column_names,
    join_header_rows,
)
from tidemill.files.formats.csv_dialect import (
    MISPLACED_QUOTE,
    UNCLOSED_QUOTE,
    CsvDialect,
    CsvRecord,
    decode_line,
)
from tidemill.files.formats.csv_tokenizer import UNCLOSED_QUOTE_ERROR
from tidemill.files.text_encoding import has_control_bytes


@dataclass(slots=True)
class OpenQuoteScan:
    """The lines that a scan for the end of a quoted field has passed, up to line ``number`` at ``offset``.

    The quote was open at the end of each of them. ``reason`` is the problem of a row that begins in one of these lines
    and leaves its quote open too; None if the scan has to continue, because it ended at the limit of a row.
    """

    number: int
    offset: int
    reason: str | None


class CsvRecordScanner:
    """Finds one row after another. A row of several lines without a valid end is an error of its first line only.

    So its other lines are scanned again, as rows of their own. Each of them may open a quote as well, and a scan to its
    end would take quadratic time. Inside a quoted field, the state of the parser does not depend on the line where the
    field began. So a scan that reaches the lines of the last failed scan has the same result, or continues there.
    """

    def __init__(self, dialect: CsvDialect, lines: LineBuffer) -> None:
        self._dialect = dialect
        self._lines = lines
        self._failed: OpenQuoteScan | None = None

    def peek_record(self) -> CsvRecord | None:
        """Return the next row, which can span several lines, without consuming it; None at the end."""
        lines = self._lines
        first = lines.peek_line(0)
        if first is None:
            return None
        if len(first) > lines.limit:
            return CsvRecord(first[: lines.limit + 1], 1, [], f"Row is longer than {lines.limit} bytes")
        if (reason := self._find_problem_by_failed_scan(first)) is not None:
            return CsvRecord(first, 1, [], reason, is_misquoted=True)
        raw: list[bytes] = []
        try:
            fields = next(self._dialect.read_rows(self._peek_lines_within_limit(raw)))
        except csv.Error as error:
            return self._describe_malformed(first, raw, str(error))
        return CsvRecord(b"\n".join(raw), len(raw), fields)

    def _describe_malformed(self, first: bytes, raw: list[bytes], error: str) -> CsvRecord:
        """Return the first line alone, as a row of several lines would include the rows after it."""
        if error == UNCLOSED_QUOTE_ERROR or len(raw) > 1:
            self._failed = OpenQuoteScan(self._lines.number, self._lines.offset, None)
            return CsvRecord(first, 1, [], self._add_to_failed_scan(self._failed, raw, error), is_misquoted=True)
        if "new-line" in error:
            return CsvRecord(first, 1, [], "Row has a carriage return in an unquoted field")
        if "field larger" in error:
            return CsvRecord(first, 1, [], f"Row is not valid CSV: {error}")
        return CsvRecord(first, 1, [], MISPLACED_QUOTE, is_misquoted=True)

    def _add_to_failed_scan(self, scan: OpenQuoteScan, raw: list[bytes], error: str) -> str:
        """Record that a scan passed these lines too before it failed; return the reason."""
        scan.number += len(raw)
        scan.offset += sum(map(len, raw)) + len(raw)
        if error != UNCLOSED_QUOTE_ERROR:
            scan.reason = MISPLACED_QUOTE
        elif self._lines.peek_line(scan.number - self._lines.number) is None:
            scan.reason = UNCLOSED_QUOTE
        return scan.reason or f"Row is longer than {self._lines.limit} bytes or has an unclosed quote"

    def _find_problem_by_failed_scan(self, first: bytes) -> str | None:
        """Return the problem of a row that begins inside the last failed scan and leaves its quote open."""
        scan, lines = self._failed, self._lines
        if scan is None or lines.number + 1 >= scan.number or not self._leaves_quote_open(first):
            return None
        if scan.reason is not None:
            return scan.reason
        raw: list[bytes] = []
        ahead, size = scan.number - lines.number, scan.offset - lines.offset
        rest = self._peek_lines_within_limit(raw, ahead, size)
        try:
            next(self._dialect.read_rows(chain([(self._dialect.quote or b"").decode() + "\n"], rest)))
        except csv.Error as error:
            return self._add_to_failed_scan(scan, raw, str(error))
        return None  # the row has an end, and is parsed as a whole

    def _leaves_quote_open(self, line: bytes) -> bool:
        try:
            next(self._dialect.read_rows([decode_line(line) + "\n"]))
        except csv.Error as error:
            return str(error) == UNCLOSED_QUOTE_ERROR
        return False

    def _peek_lines_within_limit(self, raw: list[bytes], ahead: int = 0, size: int = 0) -> Iterator[str]:
        """Yield lines until the row, which already has ``size`` bytes, exceeds the limit; add them to ``raw``."""
        lines = self._lines
        while (line := lines.peek_line(ahead + len(raw))) is not None and size + len(line) <= lines.limit:
            size += len(line) + 1
            raw.append(line)
            yield decode_line(line) + "\n"


_encode_json = msgspec.json.Encoder().encode


class CsvToJsonConverter:
    """Converts lines with one row each to JSON objects, all or none."""

    def __init__(self, columns: list[str], dialect: CsvDialect, odd_lines: Sequence[bytes] = ()) -> None:
        """``odd_lines``: the lines that are no rows of the table, and that are not converted."""
        self._columns = columns
        self._dialect = dialect
        names = [_encode_json(name).decode().replace("%", "%%") for name in columns]
        form = "{" + ",".join(f'{name}:"%s"' for name in names) + "}"
        self._form, self._text_form = form.encode().__mod__, form.__mod__
        self._marks = form.count('"')
        delimiter = (
            dialect.delimiter if len(dialect.delimiter) == 1 else b""
        )  # a part of a longer one can be in a value
        controls = set(range(32)) - {*b"\r\n", *delimiter}
        self._escaped = bytes(controls) + b"\\"
        self._quoting = self._escaped + b'"' + (dialect.quote or b"")
        self._odd_lines = odd_lines
        self._odd_plain_lines = [line for line in odd_lines if not dialect.quote or dialect.quote not in line]

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
            is_odd = any(odd in lines for odd in self._odd_plain_lines)
            return None if is_odd else self._convert_unquoted_lines(lines)
        if any(odd in lines for odd in self._odd_lines):
            return None
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
        fields = self._dialect.replace_unquoted_empty_by_none(decode_line(record.raw), record.fields)
        return _encode_json(dict(zip(self._columns, fields, strict=True)))


CSV_FALLBACK_CHUNK_LINES = (64, 8)  # smaller chunks that are tried in bulk after a larger one failed
SKIPPED_LINES_PER_STEP = 10_000
HEADER_WIDTH_SAMPLE_LINES = 20  # rows that show the number of columns if the header is malformed


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvTableRange:
    """Where the table of a CSV file is, and how its lines differ from plain rows."""

    skip_lines: int = 0
    header_rows: int = 1
    table_lines: int | None = None
    footer_lines: int = 0
    comment: str = ""
    trailing_delimiter: bool = False
    pads_short_rows: bool = False
    cuts_long_rows: bool = False


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
        table: CsvTableRange | None = None,
        encoding: str = "utf-8",
    ) -> None:
        super().__init__(checkpoint)
        csv.field_size_limit(max(max_row_bytes, csv.field_size_limit()))
        self._stream = stream
        self._encoding = encoding
        self._dialect = dialect or CsvDialect()
        self._table = table or CsvTableRange()
        self._comment = self._table.comment.encode()
        self._end = self._table.skip_lines + self._table.table_lines if self._table.table_lines is not None else None
        self._lines = LineBuffer(stream, max_row_bytes)
        self._scanner = CsvRecordScanner(self._dialect, self._lines)
        self._skip_lines(self._table.skip_lines)
        self._header_lines: list[bytes] = []
        self.columns = self._read_header() if self._table.header_rows else self._number_columns()
        self.first_line = self._lines.number + 1
        self._blank_lines = self._list_blank_lines()
        self._rows = CsvToJsonConverter(self.columns, self._dialect, self._header_lines + self._blank_lines)
        is_bulk_dialect = not self._dialect.is_blank_delimited
        self._is_plain = is_bulk_dialect and not self._comment and not self._table.trailing_delimiter
        if "offset" in checkpoint:
            self._lines = LineBuffer(stream, max_row_bytes, checkpoint["offset"], checkpoint["line"])
            self._scanner = CsvRecordScanner(self._dialect, self._lines)

    def close(self) -> None:
        self._stream.close()

    def _get_checkpoint(self) -> Checkpoint:
        return {"offset": self._lines.offset, "line": self._lines.number}

    def _skip_lines(self, count: int) -> None:
        while self._lines.number < count and (
            lines := self._lines.peek_lines(min(SKIPPED_LINES_PER_STEP, count - self._lines.number))
        ):
            self._lines.consume_lines(len(lines))

    def _read_into(self, draft: BlockBuilder) -> bool:
        lines = self._lines.peek_lines(draft.remaining_rows, draft.left)
        if self._end is not None:
            lines = lines[: max(0, self._end - self._lines.number)]
        if self._table.footer_lines:
            lines = self._without_footer(lines)
        self._add_lines(draft, lines, CSV_FALLBACK_CHUNK_LINES)
        return bool(lines)

    def _without_footer(self, lines: list[bytes]) -> list[bytes]:
        """Return the lines that are followed by enough lines to be before the footer."""
        count = len(lines)
        while count and self._lines.peek_line(count - 1 + self._table.footer_lines) is None:
            count -= 1
        return lines[:count]

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
        rows = lines if self._is_plain else self._clean_lines(lines)
        records = rows and self._rows.convert_lines(rows)
        if not records:
            return False
        draft.add_single_line_records(records, self._lines.number + 1)
        self._lines.consume_lines(len(lines))
        return True

    def _clean_lines(self, lines: list[bytes]) -> list[bytes] | None:
        """Return the lines without their last delimiter; None if a line is a comment or has another end."""
        if self._dialect.is_blank_delimited or (self._comment and any(map(self._is_comment, lines))):
            return None
        if not self._table.trailing_delimiter:
            return lines
        delimiter = self._dialect.delimiter
        lines = [line.removesuffix(b"\r") for line in lines]
        return [line[: -len(delimiter)] for line in lines] if all(x.endswith(delimiter) for x in lines) else None

    def _is_comment(self, line: bytes) -> bool:
        return bool(self._comment) and line.lstrip(b" \t").startswith(self._comment)

    def _add_next_record(self, draft: BlockBuilder) -> None:
        first = self._lines.peek_line(0)
        if first is not None and self._is_comment(first):
            self._lines.consume_lines(1)
            return
        record, line = self._scanner.peek_record(), self._lines.number + 1
        if record is None:
            return
        if record.raw.removesuffix(b"\r") in self._blank_lines:
            self._lines.consume_lines(1)
            return
        record = self._fit_to_columns(record)
        problem = record.problem or self._find_character_problem(record) or self._find_row_problem(record)
        if problem is not None:
            draft.add_defective(record.raw, line, problem, **self._build_byte_offset_kwargs_if_invalid(record))
        elif record.fields:
            draft.add_record(self._rows.convert_record(record), line)
        self._lines.consume_lines(record.span)

    def _fit_to_columns(self, record: CsvRecord) -> CsvRecord:
        """Return the record with as many fields as columns, if there is one way to read it so."""
        width = len(self.columns) + self._table.trailing_delimiter
        if record.is_misquoted or (record.span > 1 and len(record.fields) not in (0, width, len(self.columns))):
            record = self._salvage(record, width)
        if self._table.trailing_delimiter and len(record.fields) == width and not record.fields[-1]:
            record.fields.pop()
        count = len(record.fields)
        if self._table.pads_short_rows and 0 < count < len(self.columns):
            record.fields += [""] * (len(self.columns) - count)
        elif self._table.cuts_long_rows and count > len(self.columns):
            del record.fields[len(self.columns) :]
        return record

    def _salvage(self, record: CsvRecord, width: int) -> CsvRecord:
        """Read the first line alone if its quotes are misplaced and one reading fits, or if the lines after it fit."""
        first = decode_line(record.raw.split(b"\n", 1)[0])
        fields = self._dialect.salvage(first, width)
        if fields is not None:
            return CsvRecord(first.encode("utf-8", "surrogateescape"), 1, fields)
        if record.span > 1:
            following = [decode_line(self._lines.peek_line(n) or b"") for n in range(1, record.span)]
            if all(len(self._dialect.read_line(text) or []) == width for text in following):
                reason = "Row has an unclosed quote"
                return CsvRecord(first.encode("utf-8", "surrogateescape"), 1, [], reason)
        return record

    def _find_character_problem(self, record: CsvRecord) -> str | None:
        if b"\x00" in record.raw:
            return "Row contains a NUL character, which PostgreSQL cannot store"
        if self._build_byte_offset_kwargs_if_invalid(record):
            return f"Row is not valid {self._encoding.upper()}"
        return None

    def _is_binary(self, record: CsvRecord) -> bool:
        """Return whether the row has bytes that do not occur in text."""
        return bool(self._build_byte_offset_kwargs_if_invalid(record)) or has_control_bytes(record.raw)

    def _find_row_problem(self, record: CsvRecord) -> str | None:
        if record.raw.removesuffix(b"\r") in self._header_lines:
            return "Row repeats the header"
        if len(record.fields) in (0, len(self.columns)):
            return None
        counted = "header" if self._table.header_rows else "first row"
        return f"Row has {len(record.fields)} fields, but the {counted} has {len(self.columns)}"

    def _build_byte_offset_kwargs_if_invalid(self, record: CsvRecord) -> dict[str, int]:
        try:
            record.raw.decode()
        except UnicodeDecodeError as error:
            return {"byte_offset": self._stream.map_to_source_offset(self._lines.offset + error.start)}
        return {}

    def _read_header(self) -> list[str]:
        rows = []
        for _ in range(self._table.header_rows):
            header = self._peek_first_record()
            self._lines.consume_lines(header.span)
            rows.append(header.fields)
            self._header_lines = self._list_header_lines(header)
        names = join_header_rows(rows)
        if self._table.trailing_delimiter and len(names) > 1 and not names[-1].strip():
            names.pop()
        if not all(map(str.strip, names)):
            names = drop_unused_blank_names(names, self._count_widths_of_next_lines(0))
        return derive_column_names(names)

    def _count_widths_of_next_lines(self, first: int) -> Counter[int]:
        """Count the numbers of fields of the next lines that are complete rows."""
        counts: Counter[int] = Counter()
        for ahead in range(first, HEADER_WIDTH_SAMPLE_LINES + 1):
            line = self._lines.peek_line(ahead)
            fields = self._dialect.read_line(decode_line(line)) if line and len(line) <= self._lines.limit else None
            counts.update([len(fields)] if fields else [])
        return counts

    def _list_header_lines(self, header: CsvRecord) -> list[bytes]:
        """Return the spellings of the header that are reported if they occur again: as it is, and as other tools do."""
        if len(header.fields) < 2:  # noqa: PLR2004
            return []
        names = header.fields[:-1] if self._table.trailing_delimiter and not header.fields[-1] else header.fields
        raw = header.raw.removesuffix(b"\r")
        return [raw, *self._dialect.list_spellings(names), *self._dialect.list_spellings(header.fields)]

    def _list_blank_lines(self) -> list[bytes]:
        """Return the lines that have delimiters and no values, as spreadsheets write blank lines."""
        count = len(self.columns)
        if count < 2 or self._dialect.keep_empty or self._dialect.is_blank_delimited:  # noqa: PLR2004
            return []
        counts = (count, count + 1) if self._table.trailing_delimiter else (count,)
        return [line for each in counts for line in self._dialect.list_spellings([""] * each)]

    def _number_columns(self) -> list[str]:
        count = len(self._peek_first_record().fields)
        return generate_column_names(count - (self._table.trailing_delimiter and count > 1))

    def _peek_first_record(self) -> CsvRecord:
        """Return the first row that is not empty and no comment."""
        while (record := self._scanner.peek_record()) is not None:
            if self._is_comment(record.raw):
                self._lines.consume_lines(1)
                continue
            if record.is_misquoted:
                record = self._salvage_header(record)
            problem = record.problem or self._find_character_problem(record)
            if problem:
                hint = ". The file may be binary or compressed." if self._is_binary(record) else ""
                raise InvalidInput(f"Cannot read the header as CSV: {problem}{hint}")
            if any(record.fields) or len(record.fields) == 1:
                return record
            self._lines.consume_lines(record.span)
        self._lines.peek_lines(1)  # raises if the file cannot be read
        raise InvalidInput("The file is empty. A CSV file must begin with a header.")

    def _salvage_header(self, record: CsvRecord) -> CsvRecord:
        """Read a header with misplaced quotes. One reading must have about as many fields as most of the next lines.

        The next line must be a row, as a header that ends within quotes could continue there.
        """
        following = self._lines.peek_line(1)
        if following and self._dialect.read_line(decode_line(following[: self._lines.limit])) is None:
            return record
        counts = self._count_widths_of_next_lines(1)
        width = max(counts, key=lambda count: counts[count], default=0)
        for count in (width, width - 1, width + 1) if width > 1 else ():
            fields = self._dialect.find_reading(decode_line(record.raw), count)
            if fields is not None:
                return CsvRecord(record.raw, 1, fields)
        return record
