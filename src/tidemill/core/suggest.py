"""Suggests the name that was probably meant."""

import difflib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def suggest_similar(word: Any, candidates: Iterable[str]) -> str:
    near = get_close_matches(str(word), list(candidates), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def suggest_similar_quoted(word: str, candidates: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:200], list(candidates), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
