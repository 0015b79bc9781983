"""Matches patterns over a whole column of texts, and shortens values for error messages."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

ColumnTexts = list[str | None]
ParsedColumn = tuple[ColumnTexts, dict[int, str]]
"""The texts, and the errors by index."""
_MAY_MATCH_LINE_END = re.compile(r"\[\^|\\[sDWtnrfvxuUN0-9]|\(\?[a-zA-Z]*s|[\x00-\x1f]")  # may match a line end


def find_indexes_not_matching(pattern: str, texts: Sequence[str | None]) -> list[int]:
    """Return the indexes of the texts that do not match. Ignores None.

    Searches the joined column, so that a valid column needs a single match.
    """
    matches, many = _compile_pattern(pattern).fullmatch, _compile_column_pattern(pattern)
    joined = join_texts(texts) + "\n"
    if many is None or joined.count("\n") != len(texts):  # a text contains a line end
        return find_failing_indexes(matches, texts)
    run = many.match
    suspects, at, index = [], 0, 0
    while True:
        found = run(joined, at)
        end = at if found is None else found.end()
        index += joined.count("\n", at, end)
        if end == len(joined):
            break
        suspects.append(index)
        at, index = joined.index("\n", end) + 1, index + 1
    # The atomic search can miss a match, so check each suspect alone.
    return [index for index in suspects if texts[index] is not None and not matches(texts[index] or "")]


def join_texts(texts: Sequence[str | None]) -> str:
    try:
        return "\n".join(texts)  # type: ignore[arg-type]
    except TypeError:  # for None
        return "\n".join([text or "" for text in texts])


def find_failing_indexes(test: Callable[[str], object], texts: Sequence[str | None]) -> list[int]:
    """Return the indexes of the texts that fail the test. Ignores None."""
    return [index for index, text in enumerate(texts) if text is not None and not test(text)]


def normalize_mismatches(
    texts: ColumnTexts, wrong: dict[int, str], normalize: Callable[[str], str | None]
) -> ParsedColumn:
    """Normalize the texts with errors. Return all texts and the errors of texts that cannot be normalized."""
    normalized, errors = list(texts), {}
    for index, reason in wrong.items():
        text = normalize(str(texts[index]))
        if text is None:
            errors[index] = reason
        else:
            normalized[index] = text
    return normalized, errors


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=512)
def _compile_column_pattern(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern for all lines of a column that never backtracks to an earlier line.

    Returns None if the pattern can match a line end.
    """
    if _MAY_MATCH_LINE_END.search(pattern):
        return None
    try:
        return re.compile(rf"(?:(?>{pattern})\n)*+")
    except re.error:  # a pattern with flags, which must be at the beginning
        return None


ERROR_VALUE_MAX_CHARS = 200  # characters of an invalid value in an error
REDACTED_VALUE = "…"


def clean_value_for_error(value: Any) -> str | None:
    """Return a value for an error message, truncated and without characters that PostgreSQL cannot store."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= ERROR_VALUE_MAX_CHARS else text[:ERROR_VALUE_MAX_CHARS] + "…"
    if is_storable_text(text):
        return text
    return text.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_storable_text(text: str) -> bool:
    """Return whether PostgreSQL can store the text: it has no NUL and no unpaired surrogate."""
    if "\x00" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
