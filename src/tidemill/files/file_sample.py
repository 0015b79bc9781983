"""Reads a sample of a file, and splits it into rows, to detect where its table is."""

import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import BinaryIO

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.files.byte_streams import STREAM_READ_BYTES, FileStream, LineBuffer
from tidemill.files.compression import open_decompressed
from tidemill.files.formats.csv_dialect import CsvDialect, decode_line
from tidemill.files.formats.csv_reader import CsvRecordScanner

TEXT, EMPTY, NUMBER, CODE = "text", "empty", "number", "code"
TYPED_SHARE_MIN = 0.8  # of the values of a column that have its shape
NULL_WORDS = frozenset({"-", "--", "n/a", "na", "nan", "null", "none", "nil", "?", "unknown", "#n/a", ".", "k.a."})
TOTAL_WORDS = frozenset(
    [
        *("total", "totals", "grand total", "subtotal", "sub total", "sum", "summe", "gesamt", "gesamtsumme"),
        *("zwischensumme", "insgesamt", "totale", "somme", "suma", "итого", "всего", "合計", "总计", "合计"),
    ]
)
_MONTH = (
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez|janv|févr|avr|juin|juil|août|déc)[a-zé]*\.?"
)
_DAY = rf"\d{{1,4}}[-/.]\d{{1,2}}[-/.]\d{{1,4}}|\d{{1,2}}[ .-]+{_MONTH},?[ .-]+\d{{2,4}}|{_MONTH} \d{{1,2}},? \d{{4}}"
_TIME = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[ap]m)?"
_SHAPE = re.compile(
    r"(?P<number>[-+(]?\s?(?:[$€£¥]|(?:USD|EUR|GBP|CHF)\s)?\s?[-+]?(?:\d[\d.,'\u2019 \u00a0\u202f]*|\.\d+)"
    r"(?:[eE][-+]?\d+)?\s?(?:[$€£¥%‰]|USD|EUR|GBP|CHF)?\)?)"
    rf"|(?P<date>(?:{_DAY})(?:[T ]+{_TIME}(?: ?(?:Z|UTC|[-+]\d\d:?\d\d))?)?)"
    rf"|(?P<time>{_TIME})"
    r"|(?P<email>[^\s@]+@[^\s@]+\.[a-z]{2,})"
    r"|(?P<url>[a-z]{2,10}://\S+|www\.\S+)"
    r"|(?P<flag>true|false|yes|no|ja|nein|oui|non)"
    r"|(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(?P<code>(?=[^\s]*\d[^\s]*\d)[\w.:/+#-]*)",
    re.IGNORECASE,
)
SHAPE_MAX_CHARS = 100  # longer values are text


def classify_value(value: str) -> str:
    """Return the shape of a value: "number", "date", another shape, "text" or "empty"."""
    text = value.strip()
    if not text:
        return EMPTY
    if len(text) > SHAPE_MAX_CHARS:
        return TEXT
    found = _SHAPE.fullmatch(text)
    return str(found.lastgroup) if found else TEXT


def is_name(value: str) -> bool:
    """Return whether a value can be the name of a column: a text, or a code with letters, such as x0001 or 1_10."""
    shape = classify_value(value)
    return shape == TEXT or (shape == CODE and any(char.isalpha() or char == "_" for char in value))


def is_null_word(value: str) -> bool:
    return value.strip().lower() in NULL_WORDS


def is_total_word(value: str) -> bool:
    return value.strip().rstrip(":").lower() in TOTAL_WORDS


def find_column_shapes(rows: Iterable[Sequence[str]], width: int) -> list[str]:
    """Return the shape of each column: that of most of its values, or "text"."""
    counts: list[Counter[str]] = [Counter() for _ in range(width)]
    for row in rows:
        for count, value in zip(counts, row, strict=False):
            shape = classify_value(value)
            if shape != EMPTY and not is_null_word(value):
                count[shape] += 1
    return [_choose_shape(count) for count in counts]


def _choose_shape(counts: Counter[str]) -> str:
    total = sum(counts.values())
    if not total:
        return EMPTY
    shape, most = counts.most_common(1)[0]
    return shape if most >= TYPED_SHARE_MIN * total else TEXT


def is_typed(shape: str) -> bool:
    return shape not in (TEXT, EMPTY)


TABLE_ROWS_MAX = 2_000
SAMPLE_ROW_MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SampleRow:
    """A row of the sample: its first line, starting at 0, the lines it spans, and its fields."""

    line: int
    span: int
    fields: tuple[str, ...]
    is_misquoted: bool = False  # it has misplaced quotes, so that the fields are a guess

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
    """Return the rows of a text, without blank lines and lines that have only delimiters.

    Rows with misplaced quotes are read leniently.
    """
    if line_end == "\r":
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    data = text.encode("utf-8", "replace")
    lines = LineBuffer(FileStream(io.BytesIO(data)), SAMPLE_ROW_MAX_BYTES)
    scanner, rows = CsvRecordScanner(dialect, lines), list[SampleRow]()
    delimiter = dialect.delimiter.decode()
    while (line := lines.peek_line(0)) is not None and len(rows) < TABLE_ROWS_MAX:
        number, span, is_misquoted = lines.number, 1, False
        if dialect.quote is None or dialect.quote in line or dialect.is_blank_delimited or b"\r" in line[:-1]:
            record = scanner.peek_record()
            fields = record.fields if record and record.problem is None else None
            span = record.span if record else 1
            is_misquoted = fields is None
            if fields is None:
                fields = _read_leniently(decode_line(line), dialect, rows)
        else:
            fields = decode_line(line.removesuffix(b"\r")).split(delimiter) if line.strip() else []
        if fields and number >= skip_lines and (len(fields) == 1 or any(fields)):
            rows.append(SampleRow(number, span, tuple(fields), is_misquoted))
        lines.consume_lines(span)
    return rows


def _read_leniently(text: str, dialect: CsvDialect, rows: list[SampleRow]) -> list[str]:
    width = Counter(row.width for row in rows[-20:]).most_common(1)
    return dialect.read_leniently(text, width[0][0] if width else 0)


SAMPLE_HEAD_BYTES, SAMPLE_TAIL_BYTES = 64 * 1024, 16 * 1024
ENCODING_SCAN_MAX_BYTES = 8 << 20  # how much is searched for non-ASCII bytes
SAMPLE_DECOMPRESSED_MAX_BYTES = 1 << 30
TEXT_SAMPLE_FORMATS = ("csv", "tsv", "ndjson")
SAMPLE_ROWS_MAX = 5_000
SPLICED_ROWS_MAX, SPLICED_MAX_BYTES = 200_000, 16 << 20  # as JSON; of more rows, every n-th is taken
SAMPLE_PIECE_BYTES, SAMPLE_PIECES = 8 * 1024, 16
SAMPLE_DECOMPRESSED_BYTES = 4 << 20  # of a compressed file, only its beginning is sampled


class FileSample:
    """A sample of a file: complete lines at the beginning (``head``), and lines that show its encoding."""

    def __init__(self, file: BinaryIO, compression: str) -> None:
        self._stream = open_decompressed(file, compression, SAMPLE_DECOMPRESSED_MAX_BYTES)
        self._stream.seek(0)
        begin = self._read_up_to(SAMPLE_HEAD_BYTES)
        whole, end, _ = begin.rpartition(b"\n") if len(begin) == SAMPLE_HEAD_BYTES else (begin, b"", b"")
        self.head = whole + end or begin
        self.is_whole = len(begin) < SAMPLE_HEAD_BYTES
        self._begin = begin
        self._file = file if compression == "none" else None

    @cached_property
    def non_ascii_lines(self) -> list[bytes]:
        """The complete lines with non-ASCII bytes in the first megabytes."""
        kept: list[bytes] = []
        piece, tail, seen, size = self._begin, b"", 0, 0
        while piece and seen < ENCODING_SCAN_MAX_BYTES and size < SAMPLE_HEAD_BYTES:
            *lines, tail = (tail + piece).split(b"\n")
            kept += [line for line in lines if not line.isascii()]
            seen, size = seen + len(piece), sum(map(len, kept))
            piece = self._read_up_to(STREAM_READ_BYTES)
        if not piece and not tail.isascii():
            kept.append(tail)
        return kept

    def read_tail(self) -> bytes:
        """Return the last lines of a file that is not compressed; nothing if the head is the whole file."""
        if self._file is None or self.is_whole:
            return b""
        self._file.seek(max(0, self._file.seek(0, 2) - SAMPLE_TAIL_BYTES))
        return self._file.read(SAMPLE_TAIL_BYTES).partition(b"\n")[2]

    def _read_up_to(self, size: int) -> bytes:
        """Read up to ``size`` bytes. Ignore damaged data: the reader of the file reports it."""
        data = b""
        try:
            while len(data) < size and (piece := self._stream.read(size - len(data))):
                data += piece
        except InvalidInput:
            if not data:
                return b""
        return data


def splice_text_sample(file: BinaryIO, layout: FileLayout, max_bytes: int) -> bytes:
    """Return complete lines from all parts of a file, beginning with its first line.

    A compressed file is decompressed only at its beginning. A line can be in the middle of a quoted value: such lines
    are invalid rows of the sample, and the caller ignores them.
    """
    compression = layout.compression or "none"
    if compression != "none":
        stream, pieces, size = open_decompressed(file, compression, max_bytes), list[bytes](), 0
        while size < SAMPLE_DECOMPRESSED_BYTES and (piece := stream.read(SAMPLE_DECOMPRESSED_BYTES - size)):
            pieces.append(piece)
            size += len(piece)
        file = io.BytesIO(b"".join(pieces))
    size = file.seek(0, io.SEEK_END)
    encoding = layout.encoding or "utf-8"
    if encoding.startswith(("utf-16", "utf-32")) or layout.table_lines is not None:
        return _read_at(file, 0, SAMPLE_HEAD_BYTES)  # lines of the middle may begin at any byte, or be of another table
    line_end = b"\r" if layout.line_end == "\r" else b"\n"
    if size <= SAMPLE_HEAD_BYTES + SAMPLE_PIECES * SAMPLE_PIECE_BYTES:
        return _read_at(file, 0, size)
    head = _read_at(file, 0, SAMPLE_HEAD_BYTES)
    pieces = [head[: head.rfind(line_end) + 1]]
    step = (size - SAMPLE_HEAD_BYTES - SAMPLE_PIECE_BYTES) // (SAMPLE_PIECES - 1)
    for number in range(SAMPLE_PIECES):
        is_last = number == SAMPLE_PIECES - 1
        start = size - SAMPLE_PIECE_BYTES if is_last else SAMPLE_HEAD_BYTES + number * step
        piece = _read_at(file, start, SAMPLE_PIECE_BYTES).partition(line_end)[2]
        pieces.append(piece if is_last else piece[: piece.rfind(line_end) + 1])
    return b"".join(pieces)


def _read_at(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    return file.read(size)
