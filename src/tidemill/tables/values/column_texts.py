"""Matches patterns over a whole column of texts, and shortens values for error messages."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

ColumnTexts = list[str | None]
ParsedColumn = tuple[ColumnTexts, dict[int, str]]
"""The texts, and what is wrong with some of them."""
_MAY_MATCH_LINE_END = re.compile(
    r"\[\^|\\[sDWtnrfvxuUN0-9]|\(\?[a-zA-Z]*s|[\x00-\x1f]"
)  # what may match a line end, generously


def find_mismatches(pattern: str, texts: Sequence[str | None]) -> list[int]:
    """Where a text does not match; what is missing is not looked at.

    One search runs over the joined column from one bad text to the next: a flawless column costs no look at any one.
    """
    matches, many = _compile_pattern(pattern).fullmatch, _compile_column_pattern(pattern)
    joined = join_texts(texts) + "\n"
    if many is None or joined.count("\n") != len(texts):  # line ends in the texts themselves
        return find_failing_texts(matches, texts)
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
    # Atomic, the search may pass by a way of matching: who looks suspicious gets a look of their own.
    return [index for index in suspects if texts[index] is not None and not matches(texts[index] or "")]


def join_texts(texts: Sequence[str | None]) -> str:
    try:
        return "\n".join(texts)  # type: ignore[arg-type]
    except TypeError:  # some are missing
        return "\n".join([text or "" for text in texts])


def find_failing_texts(test: Callable[[str], object], texts: Sequence[str | None]) -> list[int]:
    """Where the test fails; what is missing is not tested."""
    return [index for index, text in enumerate(texts) if text is not None and not test(text)]


def normalize_mismatches(
    texts: ColumnTexts, wrong: dict[int, str], normalize: Callable[[str], str | None]
) -> ParsedColumn:
    """What is spelled unusually is spelled as usual; what cannot be stays wrong."""
    found, left = list(texts), {}
    for index, reason in wrong.items():
        text = normalize(str(texts[index]))
        if text is None:
            left[index] = reason
        else:
            found[index] = text
    return found, left


@lru_cache(maxsize=512)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=512)
def _compile_column_pattern(pattern: str) -> re.Pattern[str] | None:
    """The pattern, once per line, and never back to a line that was passed. None if it might run over a line's end."""
    if _MAY_MATCH_LINE_END.search(pattern):
        return None
    try:
        return re.compile(rf"(?:(?>{pattern})\n)*+")
    except re.error:  # flags, which stand at the beginning only
        return None


ERROR_VALUE_MAX_CHARS = 200  # characters of a bad value that an error shows
REDACTED_VALUE = "…"


def truncate_for_error(value: Any) -> str | None:
    """A value for an error to show: cut, and always text that can be stored."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= ERROR_VALUE_MAX_CHARS else text[:ERROR_VALUE_MAX_CHARS] + "…"
    if is_storable_text(text):
        return text
    return text.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_storable_text(text: str) -> bool:
    """Whether PostgreSQL takes it: no NUL, no half of a pair of surrogates."""
    if "\x00" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
