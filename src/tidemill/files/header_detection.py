"""Decides whether the first rows of a table are its header, from the shapes of the values below them."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.files.file_sample import (
    EMPTY,
    NUMBER,
    TEXT,
    SampleRow,
    classify_value,
    find_column_shapes,
    is_name,
    is_null_word,
    is_typed,
)

HEADER_ROWS_DETECTED_MAX = 5
SHAPE_SAMPLE_ROWS = 100
NAME_MAX_CHARS = 80
UNIT_MAX_CHARS = 12
_PROVED_CONFIDENCE_MIN = 0.75  # of a header above columns with numbers or dates
_SECTION_NAMES_MIN = 3  # below the title of a section
_YEARS = range(1900, 2101)


@dataclass(frozen=True, slots=True)
class HeaderGuess:
    """The number of header rows, how certain it is, and why."""

    rows: int
    confidence: float
    reason: str


def detect_header(rows: Sequence[SampleRow]) -> HeaderGuess:
    """Return the header rows at the beginning of the rows of one table."""
    if len(rows) == 1:
        return _guess_header_of_single_row(rows[0])
    width = rows[0].width
    body = rows[min(HEADER_ROWS_DETECTED_MAX, len(rows) // 2) or 1 :][:SHAPE_SAMPLE_ROWS]
    shapes = find_column_shapes((row.fields for row in body), max(width, *(row.width for row in body)))
    typed = [at for at, shape in enumerate(shapes) if is_typed(shape)]
    repeated = _count_repeated(rows)
    if repeated > 1:
        return HeaderGuess(repeated, 0.95, f"The first {repeated} rows are equal and contain the column names")
    if not typed:
        return _guess_header_of_text_table(rows)
    first = _compare_row_with_columns(rows[0], shapes, typed)
    if first.matches and not first.differs:
        return _guess_whether_data_like_row_is_header(rows[0], shapes, first.matches)
    if _has_gaps(rows[0]) and len(rows) > 2 and _is_header_like(rows[1], shapes, typed):  # noqa: PLR2004
        count = 2
        while count < min(HEADER_ROWS_DETECTED_MAX, len(rows) - 1) and _continues_groups(rows[count], shapes, typed):
            count += 1
        names = "second row has" if count == 2 else f"next {count - 1} rows have"  # noqa: PLR2004
        return HeaderGuess(count, 0.8, f"The first row has headings for groups of columns, and the {names} the names")
    if not first.differs:
        return HeaderGuess(1, 0.7, "The first row has text, and nothing in the columns with numbers or dates")
    share = first.differs / (first.differs + first.matches)
    if share < 0.6:  # noqa: PLR2004
        return HeaderGuess(1, 0.5, "Some values in the first row look like column names, and others look like data")
    return _extend_header(rows, shapes, typed, min(0.99, 0.6 + 0.4 * share))


def has_proved_header(rows: Sequence[SampleRow]) -> bool:
    """Return whether the first row has names and its columns have other values, such as numbers."""
    found = detect_header(rows)
    return found.rows > 0 and found.confidence >= _PROVED_CONFIDENCE_MIN


def has_names(rows: Sequence[SampleRow]) -> bool:
    """Return whether the first row has names: texts, or codes such as x0001 if its columns have other values."""
    shapes = list(map(classify_value, rows[0].fields))
    if all(shape == TEXT for shape in shapes):
        return True
    if shapes[-1] == EMPTY:  # a trailing delimiter
        shapes.pop()
    if not all(map(is_name, rows[0].fields[: len(shapes)])):
        return False
    return has_proved_header(rows)


def is_section_header(row: SampleRow) -> bool:
    """Return whether a row has several texts, which are different."""
    names = [value for value in row.fields if value.strip()]
    are_texts = all(classify_value(name) == TEXT for name in names)
    return len(names) >= _SECTION_NAMES_MIN and are_texts and len(set(names)) == len(names)


def completes_header(rows: Sequence[SampleRow], begin: int, width: int) -> bool:
    """Return whether the row above a header names columns that have no name in the header."""
    above, header = rows[begin - 1], rows[begin]
    pairs = zip(above.fields, header.fields, strict=False)
    completed = [over for over, name in pairs if over.strip() and not name.strip()]
    return above.width == width and above.filled > 1 and len(completed) > 0 and all(map(is_name, completed))


def is_header_of_other_width(row: SampleRow, body: Sequence[SampleRow], width: int) -> bool:
    """Return whether a row that is not as wide as the others is nevertheless their header."""
    names = [name.strip() for name in row.fields if name.strip()]
    is_near = row.width != width and row.width > 1 and 2 * len(names) >= width
    is_unique = len(set(names)) == len(names) or row.width == width - 1
    has_none = not has_proved_header(body[:100]) if row.width > width else detect_header(body[:100]).rows == 0
    return is_near and is_unique and all(map(is_name, names)) and has_none


def _extend_header(rows: Sequence[SampleRow], shapes: list[str], typed: list[int], confidence: float) -> HeaderGuess:
    """Add the rows after the first that have text in every column with numbers or dates."""
    count = 1
    while count < min(HEADER_ROWS_DETECTED_MAX, len(rows) - 1) and _continues_header(rows[count], shapes, typed):
        count += 1
    if count == 1 and len(rows) > 3 and _has_units(rows[1], rows[2:SHAPE_SAMPLE_ROWS], typed):  # noqa: PLR2004
        return HeaderGuess(2, 0.8, "The first row has names, and the second row has units for some of them")
    if count == 1:
        return HeaderGuess(
            1, round(confidence, 2), "The first row has text in columns where the other rows have numbers or dates"
        )
    reason = f"The first {count} rows have text in columns where the other rows have numbers or dates"
    return HeaderGuess(count, 0.8, reason)


@dataclass(frozen=True, slots=True)
class _Comparison:
    matches: int  # values with the shape of their column
    differs: int  # texts in a column with another shape


def _compare_row_with_columns(row: SampleRow, shapes: list[str], typed: list[int]) -> _Comparison:
    matches = differs = 0
    for at in typed:
        value = row.fields[at] if at < row.width else ""
        shape = classify_value(value)
        if shape == EMPTY or is_null_word(value):
            continue
        if shape == shapes[at] or (shape == NUMBER and shapes[at] == "code"):
            matches += 1
        elif shape in (TEXT, "code", NUMBER) and len(value) <= NAME_MAX_CHARS:
            differs += 1
    return _Comparison(matches, differs)


def _is_header_like(row: SampleRow, shapes: list[str], typed: list[int]) -> bool:
    found = _compare_row_with_columns(row, shapes, typed)
    return found.differs > 0 and found.matches == 0


def _continues_header(row: SampleRow, shapes: list[str], typed: list[int]) -> bool:
    """Return whether a row is part of the header: one odd value in a single column is no proof."""
    found = _compare_row_with_columns(row, shapes, typed)
    has_code = any(shapes[at] == "code" and _has_digit(row.fields[at]) for at in typed if at < row.width)
    return not has_code and found.matches == 0 and found.differs == len(typed) > 1


def _continues_groups(row: SampleRow, shapes: list[str], typed: list[int]) -> bool:
    """Return whether a row below headings of groups has names too: texts in half of the columns with numbers."""
    found = _compare_row_with_columns(row, shapes, typed)
    return found.matches == 0 and found.differs > 1 and 2 * found.differs >= len(typed)


def _has_units(row: SampleRow, body: Sequence[SampleRow], typed: list[int]) -> bool:
    """Return whether a row has short texts in columns with numbers only, and no value where all other rows have one."""
    filled = [at for at, value in enumerate(row.fields) if value.strip()]
    are_texts = all(at in typed and classify_value(row.fields[at]) == TEXT for at in filled)
    if not filled or not are_texts or any(len(row.fields[at]) > UNIT_MAX_CHARS for at in filled):
        return False
    wide = [each.fields for each in body if each.width == row.width]
    return any(at not in filled and all(fields[at].strip() for fields in wide) for at in range(row.width))


def _has_digit(value: str) -> bool:
    """Return whether a value can be a short code, such as "n1" in a column with "n10"."""
    return any(char.isdecimal() for char in value)


def _count_repeated(rows: Sequence[SampleRow]) -> int:
    """Return the number of rows at the beginning that are equal and have different texts."""
    first, count = rows[0].fields, 1
    if (
        len(first) < 2  # noqa: PLR2004
        or rows[0].filled < len(first)
        or len(set(first)) < len(first)
        or any(classify_value(each) != TEXT for each in first if each)
    ):
        return 1
    while count < min(HEADER_ROWS_DETECTED_MAX, len(rows)) and rows[count].fields == first:
        count += 1
    return count


def _has_gaps(row: SampleRow) -> bool:
    return 2 <= row.filled < row.width  # noqa: PLR2004


def _guess_header_of_single_row(row: SampleRow) -> HeaderGuess:
    shapes = [classify_value(value) for value in row.fields]
    if not any(map(is_typed, shapes)):
        return HeaderGuess(1, 0.7, "The file has only one row, which has text and no numbers")
    if all(value.strip().isidentifier() for value in row.fields):
        return HeaderGuess(1, 0.7, "The file has only one row, and its values are identifiers")
    return HeaderGuess(0, 0.7, "The file has only one row, which has numbers or dates")


def _guess_whether_data_like_row_is_header(row: SampleRow, shapes: list[str], matches: int) -> HeaderGuess:
    numbers = [value.strip() for value, shape in zip(row.fields, shapes, strict=False) if shape == NUMBER]
    if len(numbers) > 1 and all(n.isdecimal() for n in numbers) and _are_consecutive([int(n) for n in numbers]):
        if all(int(number) in _YEARS for number in numbers):
            return HeaderGuess(1, 0.4, "The first row has consecutive years, which can be column names or data")
        if any(classify_value(value) == TEXT for value in row.fields):
            return HeaderGuess(0, 0.5, "The first row has consecutive numbers, which can be column names or data")
    confidence = 0.9 if matches > 1 else 0.75
    return HeaderGuess(0, confidence, "The first row has numbers or dates in the same columns as the other rows")


def _are_consecutive(numbers: list[int]) -> bool:
    return all(after - before == 1 for before, after in itertools.pairwise(numbers))


def _has_values(rows: Sequence[SampleRow], at: int) -> bool:
    return any(at < row.width and row.fields[at].strip() for row in rows[:SHAPE_SAMPLE_ROWS])


def _guess_header_of_text_table(rows: Sequence[SampleRow]) -> HeaderGuess:
    """Judge the first row of a table whose columns all have text."""
    first = rows[0]
    names = [name.strip() for name in first.fields if name.strip()]
    if _has_gaps(first) and len(rows) > 2 and rows[1].filled == rows[1].width > first.filled:  # noqa: PLR2004
        return HeaderGuess(
            1, 0.5, "The first row may have headings for groups of columns, and the second row the column names"
        )
    repeats = sum(
        any(at < row.width and row.fields[at] == name for row in rows[1:SHAPE_SAMPLE_ROWS])
        for at, name in enumerate(first.fields)
        if name.strip()
    )
    if repeats:
        return HeaderGuess(1, 0.4, "Values in the first row occur again below, in the same columns")
    if any(not name.strip() and _has_values(rows[1:], at) for at, name in enumerate(first.fields) if at):
        return HeaderGuess(1, 0.5, "The first row has no name for a column with values")
    codes = [name for name in names if is_typed(classify_value(name))]
    if 2 * len(codes) > len(names) or not all(map(is_name, codes)):
        return HeaderGuess(1, 0.5, "The first row has numbers or dates, which are unusual as column names")
    if any(len(name) > NAME_MAX_CHARS for name in names):
        return HeaderGuess(1, 0.5, "The first row has long texts, which are unusual as column names")
    return HeaderGuess(1, 0.7, "The first row has short texts that do not occur again below")
