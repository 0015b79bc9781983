"""Detects where the table of a CSV file is: text before and after it, comments, its header, and further tables."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout, LayoutFinding
from tidemill.files.file_sample import (
    TEXT,
    SampleRow,
    classify_value,
    find_column_shapes,
    is_name,
    is_null_word,
    is_total_word,
    is_typed,
)
from tidemill.files.formats.column_names import (
    derive_column_names,
    describe_derived_names,
    drop_unused_blank_names,
    join_header_rows,
)
from tidemill.files.header_detection import (
    HeaderGuess,
    completes_header,
    detect_header,
    has_names,
    has_proved_header,
    is_header_of_other_width,
    is_section_header,
)

_COMMENT_PREFIXES = ("##", "#", "//", "%")
_FOOTER_ROWS_MAX = 10
_OTHER_DELIMITERS = (None, ",", ";", "\t", "|")  # None: blanks
_BOUNDARY_ROWS = 20  # rows after a possible second header that must not return to the first table
_FOOTNOTE_CHARS_MIN = 20
_TABLE_WIDTH_MIN, _TABLE_ROWS_MIN = 2, 3
_PROFILE_ROWS_MIN, _PROFILE_ROWS_MAX = 8, 128  # rows at the beginning of a table that show its columns
_TITLE_ROWS_MAX = 20
_LABEL_ROWS_MAX = 10
_WIDE_SHARE_MAX = 0.1  # of the rows of a table with one column
_EQUAL_SHARE_MIN = 0.9  # of the rows that lack the same number of fields
_PREAMBLE_TABLE_WIDTH_MIN, _PREAMBLE_TABLE_ROWS_MIN = 3, 3


@dataclass(slots=True)
class DetectedTable:
    """The options that describe the table, and the findings about the ones that are not given."""

    options: dict[str, str | int | bool] = field(default_factory=dict)
    findings: list[LayoutFinding] = field(default_factory=list)
    given: FileLayout = field(default_factory=FileLayout)

    def add(self, option: str, value: str | int | bool, confidence: float, reason: str) -> None:
        """Set an option that is not given."""
        if getattr(self.given, option, None) is None:
            self.options[option] = value
            self.findings.append(
                LayoutFinding(option=option, value=value, confidence=round(confidence, 2), reason=reason)
            )


def detect_table(
    rows: list[SampleRow], given: FileLayout, *, tail: Sequence[SampleRow], tail_lines: int, is_whole: bool
) -> DetectedTable:
    """Return the options of the table in a sample of rows.

    ``tail`` are the last rows of the file, numbered in a text of ``tail_lines`` lines; empty if they are unknown.
    """
    table = DetectedTable(given=given)
    comment = given.comment if given.comment is not None else _detect_comment(rows, table)
    if comment:
        rows = [row for row in rows if not row.fields[0].lstrip().startswith(comment)]
        tail = [row for row in tail if not row.fields[0].lstrip().startswith(comment)]
    if given.header_rows is None and given.header is None:
        table.options["header"] = True
    rows = [row for row in rows if row.line >= int(table.options.get("skip_lines", 0))]
    if not rows:
        return table
    rows, is_last = _choose_table(rows, table)
    _check_single_column(rows, table)
    if given.skip_lines is None and given.table_lines is None:
        rows = _skip_preamble(rows, table)
    guess = _find_header(rows, table)
    _detect_trailing_delimiter(rows, guess, table)
    if is_last and given.footer_lines is None and given.table_lines is None and tail:
        body = rows[guess.rows :]
        _detect_footer(body, rows if is_whole else tail, tail_lines, table)
    return table


def detect_sheet_table(rows: list[SampleRow], given: FileLayout) -> DetectedTable:
    """Return the header and the first row of the table in the first rows of a sheet, which are equally wide."""
    table = DetectedTable(given=replace(given, trailing_delimiter=False, table=1))
    if rows:
        _find_header(_skip_preamble(rows, table) if given.skip_lines is None else rows, table)
    return table


def get_common_width(rows: Sequence[SampleRow]) -> int:
    """Return the number of fields of most rows; of two that are equally common, the larger."""
    counts = Counter(row.width for row in rows)
    return max(counts, key=lambda width: (counts[width], width))


def _detect_comment(rows: Sequence[SampleRow], table: DetectedTable) -> str:
    first_cells = [row.fields[0].lstrip() for row in rows]
    for prefix in _COMMENT_PREFIXES:
        marked = [row for row, cell in zip(rows, first_cells, strict=True) if cell.startswith(prefix)]
        others = [row for row, cell in zip(rows, first_cells, strict=True) if not cell.startswith(prefix)]
        if not marked or not others:
            continue
        width = get_common_width(others)
        if width == 1:
            is_comment = marked[0] is rows[0] and len(marked) < len(others)
        else:
            is_comment = any(row.width < width for row in marked)
        if is_comment:
            last = marked[-1]
            if width > 1 and last.width == width and last is rows[len(marked) - 1]:
                if has_names(rows[len(marked) - 1 :]) and table.given.skip_lines is None:
                    reason = "The last comment line has a name for each column"
                    table.add("skip_lines", last.line, 0.8, reason)
                    return ""
                table.add("header", False, 0.5, "The last comment line before the rows may contain the column names")
            table.add("comment", prefix, 0.9, f"{len(marked)} lines begin with {prefix}")
            return prefix
    return ""


def _choose_table(rows: list[SampleRow], table: DetectedTable) -> tuple[list[SampleRow], bool]:
    """Return the rows of the chosen table, and whether it is the last one of the sample."""
    starts = _find_table_starts(rows)
    number = table.given.table
    if number is not None and number > len(starts):
        tables = "one table" if len(starts) == 1 else f"{len(starts)} tables"
        raise InvalidInput(f"table: the file has no table {number}. Detection found {tables}.")
    chosen = number or 1
    if len(starts) > 1:
        reason = f"The file has {len(starts)} tables, which begin at lines {_list_lines(rows, starts)}"
        table.add("table", chosen, 0.5, reason)
    begin = starts[chosen - 1]
    end = starts[chosen] if chosen < len(starts) else len(rows)
    if begin and table.given.skip_lines is None:
        table.options["skip_lines"] = rows[begin].line
    if end < len(rows) and table.given.table_lines is None:
        table.options["table_lines"] = rows[end].line - int(table.options.get("skip_lines", 0))
    return rows[begin:end], end == len(rows)


def _list_lines(rows: Sequence[SampleRow], starts: Sequence[int]) -> str:
    return ", ".join(str(rows[start].line + 1) for start in starts[:10])


class _TableProfile:
    """The width and the typed columns of the first rows of a table, up to a row."""

    def __init__(self, rows: Sequence[SampleRow], start: int) -> None:
        self._rows, self._start, self._count = rows, start, 0
        self.width = self.wide_rows = 0
        self._typed: int | None = None

    def extend(self, end: int) -> None:
        """Include the rows before ``end``: each of the first ones, then twice as many each time, up to a limit."""
        count = min(end - self._start, _PROFILE_ROWS_MAX)
        count = count if count <= _PROFILE_ROWS_MIN else 1 << (count.bit_length() - 1)
        if count != self._count:
            self._count, self._typed = count, None
            rows = self._get_rows()
            self.width = get_common_width(rows)
            self.wide_rows = sum(row.width == self.width for row in rows)

    def count_typed_columns(self) -> int:
        if self._typed is None:
            shapes = find_column_shapes((row.fields for row in self._get_rows()[1:]), self.width)
            self._typed = sum(map(is_typed, shapes))
        return self._typed

    def _get_rows(self) -> Sequence[SampleRow]:
        return self._rows[self._start : self._start + self._count]


def _check_single_column(rows: Sequence[SampleRow], table: DetectedTable) -> None:
    """Add a doubt if most rows have one field, and many others have several."""
    wide = sum(row.width > 1 for row in rows)
    if table.given.delimiter is None and get_common_width(rows) == 1 and wide > _WIDE_SHARE_MAX * len(rows):
        reason = f"{wide} of {len(rows)} rows have several fields, and the others have no delimiter"
        table.findings.append(LayoutFinding(option="delimiter", value="", confidence=0.4, reason=reason))


def _find_table_starts(rows: Sequence[SampleRow]) -> list[int]:
    """Return the index of the first row of each table; titles before a table belong to it."""
    starts, table = [0], _TableProfile(rows, 0)
    at = 2
    while at < len(rows) - 1:
        table.extend(at)
        if _is_second_header(rows, starts[-1], at, table):
            begin = at
            while begin - 1 > starts[-1] + 1 and _is_title(rows[begin - 1], rows[at].width):
                begin -= 1
            starts.append(begin)
            table = _TableProfile(rows, begin)
            at += 1
        at += 1
    return starts


def _is_second_header(rows: Sequence[SampleRow], start: int, at: int, table: _TableProfile) -> bool:
    """Return whether a row is the header of another table: names, with rows of the same width after it."""
    row, before = rows[at], rows[at - 1]
    if row.width < _TABLE_WIDTH_MIN or table.width < _TABLE_WIDTH_MIN or table.wide_rows < _TABLE_ROWS_MIN:
        return False  # one column, or text before the first table
    has_gap = row.line > before.end
    if row.width != table.width:
        is_new = before.width != row.width and _is_followed_by_table(rows, at, table.width, has_gap=has_gap)
        return is_new and has_names(rows[at : at + _BOUNDARY_ROWS])
    if rows[at + 1].width != table.width:
        return False
    if _is_title(before, row.width) and before.fields[0] and before.line > rows[at - 2].end and is_section_header(row):
        return True
    if table.count_typed_columns() < (1 if has_gap else 2):
        return False
    is_repeated = row.fields in [each.fields for each in rows[start : min(start + _TITLE_ROWS_MAX, at)]]
    if is_repeated and not _is_title(before, row.width):
        return False  # one file was appended to another
    return all(classify_value(value) == TEXT for value in row.fields)


def _is_followed_by_table(rows: Sequence[SampleRow], at: int, width: int, *, has_gap: bool) -> bool:
    """Return whether the rows after a row are as wide as it, and do not return to the width of the first table."""
    after = list(rows[at + 1 : at + 1 + _BOUNDARY_ROWS])
    if has_gap:
        gaps = [n for n, each in enumerate(after) if each.line > rows[at + n].end]
        after = after[: gaps[0]] if gaps else after
    same = sum(each.width == rows[at].width for each in after)
    is_gone = not any(each.width == width for each in after)
    return is_gone and after[:1] != [] and after[0].width == rows[at].width and same >= (1 if has_gap else 2)


def _skip_preamble(rows: list[SampleRow], table: DetectedTable) -> list[SampleRow]:
    """Return the rows without the text before the table."""
    width = get_common_width(rows)
    begin = _find_first_full_row(rows, width) or _find_header_below_labels(rows, width)
    if begin and (
        is_header_of_other_width(rows[begin - 1], rows[begin:], width) or completes_header(rows, begin, width)
    ):
        begin -= 1
    if begin:
        lines = rows[begin].line
        last = rows[begin - 1]
        is_near = last.end == rows[begin].line
        is_doubtful = is_near and detect_header(rows[begin:]).rows == 0
        reason = f"The table begins at line {lines + 1}, and the rows above it have fewer values"
        if is_doubtful:
            reason = f"The table seems to begin at line {lines + 1}, but then it has no header"
        if is_near and last.width == width and not last.fields[0].strip() and last.filled:
            is_doubtful, reason = (
                True,
                f"Line {last.line + 1} may be text before the table, or have headings for groups of columns",
            )
        elif is_near and _is_title(last, width) and last.width == width and not has_proved_header(rows[begin:]):
            is_doubtful, reason = True, f"Line {last.line + 1} may be a title, or a header with a single name"
        elif is_near and last.filled > 1 and not has_proved_header(rows[begin:]):
            is_doubtful, reason = True, f"Line {last.line + 1} may be text before the table, or its header"
        elif _has_table(rows[:begin]) or any(row.width == width and row.filled > 1 for row in rows[:begin]):
            is_doubtful, reason = True, f"The first {lines} lines may be text before the table, or another table"
        limit = table.options.get("table_lines")
        if limit is not None:
            table.options["table_lines"] = int(limit) - (lines - int(table.options.get("skip_lines", 0)))
        table.add("skip_lines", lines, 0.5 if is_doubtful else 0.9, reason)
    return rows[begin:]


def _find_first_full_row(rows: Sequence[SampleRow], width: int) -> int:
    if width == 1:
        return 0
    filled = Counter(row.filled for row in rows if row.width == width).most_common(1)[0][0]
    least = 2 if filled > 1 and width > 2 else 1  # noqa: PLR2004
    least = max(least, min(filled, width) // 2)
    begin = next((at for at, row in enumerate(rows) if row.width == width and row.filled >= least), 0)
    return _find_row_after_titles(rows, begin, width)


def _find_header_below_labels(rows: Sequence[SampleRow], width: int) -> int:
    """Return the first row below a blank line if it has names above numbers or dates, and few rows are above it."""
    for at in range(1, min(_LABEL_ROWS_MAX, len(rows) - 2) + 1):
        if rows[at].line > rows[at - 1].end and rows[at].width == rows[at + 1].width == width:
            is_header = all(classify_value(value) == TEXT for value in rows[at].fields)
            return at if is_header and has_proved_header(rows[at:]) else 0
    return 0


def _find_row_after_titles(rows: Sequence[SampleRow], begin: int, width: int) -> int:
    """Return the first row that is no title: a single text above a header that names at least half of the columns."""
    at = begin
    while at < min(begin + _TITLE_ROWS_MAX, len(rows) - 2) and _is_title(rows[at], width):
        at += 1
    names = [value for value in rows[at].fields if value.strip()]
    section = itertools.takewhile(lambda n: n == at or rows[n].line == rows[n - 1].end, range(at, len(rows)))
    used = {column for n in section for column, value in enumerate(rows[n].fields) if value.strip()}
    if at == begin or len(names) < 2 or 2 * len(names) < len(used) or not all(map(is_name, names)):  # noqa: PLR2004
        return begin
    is_title = len(used) > 2 or rows[at].line > rows[at - 1].end or has_proved_header(rows[at:])  # noqa: PLR2004
    return at if is_title else begin


def _is_title(row: SampleRow, width: int) -> bool:
    return row.width <= width and row.filled == 1 and any(classify_value(value) == TEXT for value in row.fields)


def _has_table(rows: Sequence[SampleRow]) -> bool:
    """Return whether rows may be a table of their own: some of them are equally wide and have several values."""
    widths = Counter(row.width for row in rows if row.filled > 1 and row.width >= _PREAMBLE_TABLE_WIDTH_MIN)
    return any(count >= _PREAMBLE_TABLE_ROWS_MIN for count in widths.values())


def _find_header(rows: Sequence[SampleRow], table: DetectedTable) -> HeaderGuess:
    given = table.given
    if given.header_rows is not None or given.header is not None:
        count = (
            given.header_rows
            if given.header_rows is not None and given.header is not False
            else int(bool(given.header))
        )
        guess = HeaderGuess(count, 1.0, "")
    else:
        guess = detect_header(rows)
        if table.options.get("header") is not False:
            confidence, reason = _check_header_width(rows, guess, table)
            table.add("header", guess.rows > 0, confidence, reason)
            if guess.rows > 1:
                table.add("header_rows", guess.rows, confidence, reason)
        else:
            guess = HeaderGuess(0, 0.5, "")
    if guess.rows:
        names = join_header_rows([row.fields for row in rows[: guess.rows]])
        if table.given.trailing_delimiter or _has_trailing_delimiter_in_all_rows(rows, guess.rows):
            names = names[:-1] if len(names) == get_common_width(rows) and not names[-1].strip() else names
        names = drop_unused_blank_names(names, {row.width for row in rows[guess.rows :]})
        derived = describe_derived_names(names, derive_column_names(names))
        if derived:
            table.findings.append(
                LayoutFinding(
                    option="columns",
                    value=derived,
                    confidence=0.9,
                    reason="A column has no name in the header, or a name occurs more than once",
                )
            )
    return guess


def _check_header_width(rows: Sequence[SampleRow], guess: HeaderGuess, table: DetectedTable) -> tuple[float, str]:
    if guess.rows == 0 or len(rows) <= guess.rows or _has_trailing_delimiter_in_all_rows(rows, guess.rows):
        return guess.confidence, guess.reason
    body = rows[guess.rows :]
    width, names = get_common_width(body), max(row.width for row in rows[: guess.rows])
    if len(drop_unused_blank_names(join_header_rows([row.fields for row in rows[: guess.rows]]), {width})) == width:
        return guess.confidence, guess.reason
    if names != width and sum(row.width == names for row in body) < 0.5 * len(body):
        if names > width and sum(row.width == width for row in body) > _EQUAL_SHARE_MIN * len(body):
            reason = (
                f"The header has {names} names, but most rows have {width} fields; pad leaves the last columns empty"
            )
            table.add("short_rows", "pad", 0.5, reason)
            return guess.confidence, guess.reason
        return min(guess.confidence, 0.5), f"The header has {names} names, but most rows have {width} fields"
    return guess.confidence, guess.reason


def _has_trailing_delimiter_in_all_rows(rows: Sequence[SampleRow], header_rows: int) -> bool:
    """Return whether each row ends with a delimiter after which neither a name nor a value follows."""
    header, body = rows[:header_rows], rows[header_rows:]
    if not header or not body:
        return False
    width = get_common_width(body)
    if width < 2 or any(row.width not in (width, width - 1) for row in header):  # noqa: PLR2004
        return False
    is_unnamed = all(row.width == width - 1 or not row.fields[-1].strip() for row in header)
    full = [row for row in body if row.width == width]
    return is_unnamed and len(full) > 0.5 * len(body) and not any(row.fields[-1].strip() for row in full)


def _detect_trailing_delimiter(rows: Sequence[SampleRow], guess: HeaderGuess, table: DetectedTable) -> None:
    if table.given.trailing_delimiter is not None or not _has_trailing_delimiter_in_all_rows(rows, guess.rows):
        return
    width = get_common_width(rows[guess.rows :])
    if any(row.width == width for row in rows[: guess.rows]):
        table.add("trailing_delimiter", True, 0.95, "Each row ends with a delimiter, and nothing follows it")
    else:
        reason = (
            "Each row ends with a delimiter, but the header does not. The header may lack the name of the last column"
        )
        table.add("trailing_delimiter", True, 0.5, reason)


def _detect_footer(body: Sequence[SampleRow], tail: Sequence[SampleRow], tail_lines: int, table: DetectedTable) -> None:
    if len(body) < 2:  # noqa: PLR2004
        return
    width = get_common_width(body)
    typical = [row.fields for row in body[:100] if row.filled > 1 and not is_total_word(next(iter(row.fields)))]
    shapes = find_column_shapes(typical, width)
    begin, confidence = len(tail), 1.0
    first_index = len(tail) - min(_FOOTER_ROWS_MAX, len(tail) - 1)
    while begin > first_index:
        certainty = _compute_footer_certainty(tail[begin - 1], tail[begin - 2], body, shapes)
        if not certainty:
            break
        begin, confidence = begin - 1, min(confidence, certainty)
    if begin < len(tail):
        if 2 * (len(tail) - begin) >= len(body):
            confidence = min(confidence, 0.5)
        texts = "; ".join(next(filter(None, row.fields), "")[:30] for row in tail[begin:][:3])
        reason = f"The rows at the end do not belong to the table: {texts}"
        table.add("footer_lines", tail_lines - tail[begin].line, confidence, reason)


def _compute_footer_certainty(row: SampleRow, before: SampleRow, body: Sequence[SampleRow], shapes: list[str]) -> float:
    """Return how certain a row is no row of the table; 0 if it is one, or if that is for the reader to report."""
    width, first = len(shapes), next(filter(None, (value.strip() for value in row.fields)), "")
    if width < 2 or not first:  # noqa: PLR2004
        return 0 if first or width < 2 else 0.9  # noqa: PLR2004  only delimiters
    others = [each for each in body if each is not row]
    if row.filled == 1 and classify_value(first) == TEXT and not is_null_word(first):
        at = next(n for n, value in enumerate(row.fields) if value.strip())
        if row.width == width and (
            any(each.filled == 1 for each in others[:-_FOOTER_ROWS_MAX]) or _has_rows_of_one_value(body, at)
        ):
            return 0
        if _has_other_delimiter(first, width):
            return 0
        is_odd = is_typed(shapes[at]) or len(first) >= _FOOTNOTE_CHARS_MIN or " " in first or ":" in first
        if row.line > before.end or is_odd or is_total_word(first):
            return 0.9
        return 0.5 if row.width == width and width > 2 else 0  # noqa: PLR2004
    if is_total_word(first) and row.width <= width:
        blank = [at for at, value in enumerate(row.fields) if not value.strip()]
        is_sparse = any(all(each.fields[at].strip() for each in others[:100] if at < each.width) for at in blank)
        at = next(n for n, value in enumerate(row.fields) if value.strip())
        return 0.9 if is_typed(shapes[at]) or is_sparse or _has_sum_of_column(row, others) else 0.5
    return 0


def _has_other_delimiter(text: str, width: int) -> bool:
    """Return whether a text is a row with another delimiter: at least as many values, and some of them typed."""
    rows = [text.split(delimiter) for delimiter in _OTHER_DELIMITERS]
    return any(len(row) >= width and sum(is_typed(classify_value(value)) for value in row) > 1 for row in rows)


def _has_rows_of_one_value(body: Sequence[SampleRow], at: int) -> bool:
    """Return whether rows that have a value in one column only are followed by rows with more values."""
    last = next((n for n in range(len(body) - 1, -1, -1) if body[n].filled > 1), 0)
    return any(row.filled == 1 and at < row.width and row.fields[at].strip() for row in body[:last])


def _has_sum_of_column(row: SampleRow, others: Sequence[SampleRow]) -> bool:
    """Return whether a number of the row is the sum of its column."""
    for at, value in enumerate(row.fields):
        try:
            total = _parse_number(value)
            numbers = [_parse_number(each.fields[at]) for each in others if at < each.width and each.fields[at].strip()]
        except ValueError:
            continue
        if len(numbers) > 1 and abs(sum(numbers) - total) <= 1e-6 * max(1.0, abs(total)):
            return True
    return False


def _parse_number(text: str) -> float:
    """Return a number with a decimal point or a decimal comma; ValueError for others."""
    return float(text.replace(",", ".") if text.count(",") == 1 and "." not in text else text)
