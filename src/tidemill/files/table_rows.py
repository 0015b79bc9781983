"""Splits a sample of a CSV file into rows, to detect where its table is."""

import io
from collections import Counter
from dataclasses import dataclass

from tidemill.files.byte_streams import FileStream, LineBuffer
from tidemill.files.formats.csv_dialect import CsvDialect, decode_line
from tidemill.files.formats.csv_record_scanner import CsvRecordScanner

SAMPLE_ROWS_MAX = 2_000
SAMPLE_ROW_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row of the sample: its first line, starting at 0, the lines it spans, and its fields."""

    line: int
    span: int
    fields: tuple[str, ...]

    @property
    def width(self) -> int:
        return len(self.fields)

    @property
    def filled(self) -> int:
        return sum(map(bool, map(str.strip, self.fields)))

    @property
    def end(self) -> int:
        return self.line + self.span


def split_sample_rows(text: str, dialect: CsvDialect, line_end: str, skip_lines: int = 0) -> list[SampleRow]:
    """Return the rows of a text that are not blank. Rows with misplaced quotes are read leniently."""
    if line_end == "\r":
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    data = text.encode("utf-8", "replace")
    lines = LineBuffer(FileStream(io.BytesIO(data)), SAMPLE_ROW_MAX_BYTES)
    scanner, rows = CsvRecordScanner(dialect, lines), list[SampleRow]()
    delimiter = dialect.delimiter.decode()
    while (line := lines.peek_line(0)) is not None and len(rows) < SAMPLE_ROWS_MAX:
        number, span = lines.number, 1
        if dialect.quote is None or dialect.quote in line or dialect.is_blank_delimited or b"\r" in line[:-1]:
            record = scanner.peek_record()
            fields = record.fields if record and record.problem is None else None
            span = record.span if record else 1
            if fields is None:
                fields = _read_leniently(decode_line(line), dialect, rows)
        else:
            fields = decode_line(line.removesuffix(b"\r")).split(delimiter) if line.strip() else []
        if fields and number >= skip_lines:
            rows.append(SampleRow(number, span, tuple(fields)))
        lines.consume_lines(span)
    return rows


def _read_leniently(text: str, dialect: CsvDialect, rows: list[SampleRow]) -> list[str]:
    width = Counter(row.width for row in rows[-20:]).most_common(1)
    return dialect.read_leniently(text, width[0][0] if width else 0)
