"""Suggests a similar name for an unknown one."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

COMPARED_MAX_CHARS = 200  # of an unknown word, which a request may make long


def format_suggestion(word: Any, candidates: Iterable[str]) -> str:
    """Return ``; did you mean "…"?`` with the most similar candidate, or an empty string."""
    near = get_close_matches(str(word)[:COMPARED_MAX_CHARS], list(candidates), n=1)
    return f'; did you mean "{near[0]}"?' if near else ""
