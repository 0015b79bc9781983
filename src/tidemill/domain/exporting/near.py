"""What may have been meant."""

import difflib
from collections.abc import Iterable


def like(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:200], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
