"""Looks at a whole column at once."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

Texts = list[str | None]


def mismatches(pattern: str, texts: Sequence[str | None]) -> list[int]:
    """Where a text does not match; what is missing is not looked at.

    One search runs over the joined column from one bad text to the next: a flawless column costs no look at any one.
    """
    matches = _one(pattern).fullmatch
    joined = join(texts) + "\n"
    if joined.count("\n") != len(texts):  # line ends in the texts themselves
        return failing(matches, texts)
    run = _many(pattern).match
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


@lru_cache(maxsize=512)
def _one(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@lru_cache(maxsize=512)
def _many(pattern: str) -> re.Pattern[str]:
    """The pattern, once per line, and never back to a line that was passed."""
    return re.compile(rf"(?:(?>{pattern})\n)*+")
