"""Two rules of one field, each to be kept: the narrower of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from tidemill.domain.resource import Field

LOWER_BOUNDS = ("min_length", "minimum", "above")
UPPER_BOUNDS = ("max_length", "max_words", "maximum", "below")


def narrowed(field: Field, rule: Mapping[str, Any]) -> Field:
    """The field with a rule more. Of two patterns the later one stays: both together have no one pattern."""
    changes = {name: _narrower(field, name, value) for name, value in rule.items()}
    return replace(field, **changes)


def _narrower(field: Field, name: str, value: Any) -> Any:
    before = getattr(field, name)
    if name == "enum" and before:
        return tuple(one for one in before if one in value)
    if before is None or name not in (*LOWER_BOUNDS, *UPPER_BOUNDS):
        return value
    choose: Callable[..., Any] = max if name in LOWER_BOUNDS else min
    return choose(before, value, key=lambda bound: ordered(field, bound))


def ordered(field: Field, bound: Any) -> Any:
    """A bound as it compares: numbers by value, dates by their text."""
    return Decimal(bound) if isinstance(bound, int) or field.type in ("integer", "number") else bound
