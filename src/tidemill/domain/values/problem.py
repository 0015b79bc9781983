"""What is wrong with a value."""

from dataclasses import dataclass
from typing import Any

VALUE_MAX = 200  # characters of a bad value that an error shows
REDACTED = "…"


@dataclass(frozen=True, slots=True)
class Problem:
    """``code`` names the rule, ``reason`` says what would have been right."""

    field: str | None
    code: str
    reason: str
    value: str | None = None


def shown(value: Any) -> str | None:
    """A value for an error to show: cut, and always text that can be stored."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    text = text if len(text) <= VALUE_MAX else text[:VALUE_MAX] + "…"
    if is_storable(text):
        return text
    return text.encode(errors="replace").decode().replace("\x00", "\N{REPLACEMENT CHARACTER}")


def is_storable(text: str) -> bool:
    """Whether PostgreSQL takes it: no NUL, no half of a pair of surrogates."""
    if "\x00" in text:
        return False
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
