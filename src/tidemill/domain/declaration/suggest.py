"""The word that was probably meant."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    near = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""
