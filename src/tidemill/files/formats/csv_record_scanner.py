"""Finds the rows of a CSV file, which can span several lines."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from tidemill.files.byte_streams import LineBuffer
from tidemill.files.formats.csv_dialect import (
    MISPLACED_QUOTE,
    UNCLOSED_QUOTE,
    CsvDialect,
    CsvRecord,
    decode_line,
)
from tidemill.files.formats.csv_tokenizer import UNCLOSED_QUOTE_ERROR


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
