"""Looks at a whole column at once."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

Texts = list[str | None]
Found = tuple[Texts, dict[int, str]]
"""The texts, and what is wrong with some of them."""
_RUNS_OVER = re.compile(r"\[\^|\\[sDWtnrfvxuUN0-9]|\(\?[a-zA-Z]*s|[\x00-\x1f]")  # what may match a line end, generously


def mismatches(pattern: str, texts: Sequence[str | None]) -> list[int]:
    """Where a text does not match; what is missing is not looked at.

    One search runs over the joined column from one bad text to the next: a flawless column costs no look at any one.
    """
    matches, many = _one(pattern).fullmatch, _many(pattern)
    joined = join(texts) + "\n"
    if many is None or joined.count("\n") != len(texts):  # line ends in the texts themselves
        return failing(matches, texts)
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


def join(texts: Sequence[str | None]) -> str:
    try:
        return "\n".join(texts)  # type: ignore[arg-type]
    except TypeError:  # some are missing
        return "\n".join([text or "" for text in texts])


def failing(test: Callable[[str], object], texts: Sequence[str | None]) -> list[int]:
    """Where the test fails; what is missing is not tested."""
    return [index for index, text in enumerate(texts) if text is not None and not test(text)]


def mended(texts: Texts, wrong: dict[int, str], mend: Callable[[str], str | None]) -> Found:
    """What is spelled unusually is spelled as usual; what cannot be stays wrong."""
    found, left = list(texts), {}
    for index, reason in wrong.items():
        text = mend(str(texts[index]))
        if text is None:
            left[index] = reason
        else:
            found[index] = text
    return found, left


@lru_cache(maxsize=512)
def _one(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=512)
def _many(pattern: str) -> re.Pattern[str] | None:
    """The pattern, once per line, and never back to a line that was passed. None if it might run over a line's end."""
    if _RUNS_OVER.search(pattern):
        return None
    try:
        return re.compile(rf"(?:(?>{pattern})\n)*+")
    except re.error:  # flags, which stand at the beginning only
        return None
