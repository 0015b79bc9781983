"""Suggests a similar name for an unknown one."""

import difflib
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def format_suggestion(word: Any, candidates: Iterable[str]) -> str:
    """Return ``; did you mean "…"?`` with the most similar candidate, or an empty string."""
    near = get_close_matches(str(word), list(candidates), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""


def format_suggestion_for_long_word(word: str, candidates: Iterable[str]) -> str:
    """Return the same as ``format_suggestion`` for a word that may be long."""
    near = difflib.get_close_matches(word[:200], list(candidates), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
