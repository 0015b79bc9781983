"""Suggests the name that was probably meant."""

import difflib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def format_suggestion(word: Any, candidates: Iterable[str]) -> str:
    near = get_close_matches(str(word), list(candidates), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def format_quoted_suggestion(word: str, candidates: Iterable[str]) -> str:
    near = difflib.get_close_matches(word[:200], list(candidates), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
