"""The rules of a declared field on top of those of its column: together they are stricter, or it is told why not."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

from tidemill.domain.catalog.narrow import LOWER_BOUNDS, UPPER_BOUNDS, ordered
from tidemill.domain.resource import Field, Type

_NARROWER: dict[Type, tuple[Type, ...]] = {
    "text": ("integer", "number", "boolean", "date", "time", "timestamp", "uuid", "json"),
    "number": ("integer",),
}
_ORDERED = ("integer", "number", "date", "time", "timestamp")
_FOR_TYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("min_length", "max_length", "max_words", "pattern"), ("text", "other")),
    **dict.fromkeys(("minimum", "maximum", "above", "below"), _ORDERED),
    "enum": ("text", "other", "integer", "number", "boolean", "date", "uuid"),
    "formats": ("date", "time", "timestamp"),
}
_TOLD = {"formats": "date_formats"}


class Stricter:
    """Applies rules to one field, and keeps what does not fit."""

    def __init__(self, field: Field, path: str) -> None:
        self.problems: list[str] = []
        self._field, self._path = field, path

    def field(self, rules: Mapping[str, Any]) -> Field:
        if "type" in rules:
            self._field = replace(self._field, type=self._type(rules["type"]))
        # What is required is known only after what stands for a missing value.
        for name in sorted(rules, key=lambda name: (name == "required", name == "default")):
            if self._fits_the_type(name):
                self._apply(name, rules[name])
        return self._field

    def _type(self, wanted: Type) -> Type:
        have = self._field.type
        if have not in (wanted, "other") and wanted not in _NARROWER.get(have, ()):
            self._wrong("type", f"the column is {self._field.sql_type}, which does not hold every {wanted}")
            return have
        return wanted

    def _fits_the_type(self, name: str) -> bool:
        fits = self._field.type in _FOR_TYPES.get(name, (self._field.type,))
        if not fits:
            self._wrong(_TOLD.get(name, name), f"this is no rule for {self._field.type}")
        return fits

    def _apply(self, name: str, value: Any) -> None:
        if name == "required":
            self._require(wanted=value)
        elif name == "enum":
            self._enum(value)
        elif name in (*LOWER_BOUNDS, *UPPER_BOUNDS):
            self._bound(name, value)
        elif name == "default":
            self._set(default=value, required=False, filled=False)
        elif name != "type":
            self._set(**{name: value})

    def _require(self, *, wanted: bool) -> None:
        if wanted:
            self._set(required=True, default=None, filled=False)
        elif self._field.required:
            self._wrong("required", "the column is NOT NULL and has no default")

    def _enum(self, values: tuple[str, ...]) -> None:
        known = self._field.enum
        strange = [value for value in values if known and value not in known]
        if strange:
            self._wrong("enum", f"the table does not take {', '.join(strange)}; it takes {', '.join(known)}")
        self._set(enum=values)

    def _bound(self, name: str, value: Any) -> None:
        if not isinstance(value, int) and not _is_of(self._field.type, value):
            self._wrong(name, f"{value!r} is not of type {self._field.type}")
            return
        before = getattr(self._field, name)
        if before is not None:
            new, old = ordered(self._field, value), ordered(self._field, before)
            if new < old if name in LOWER_BOUNDS else new > old:
                self._wrong(name, f"{value} is looser than the table's own {before}")
                return
        self._set(**{name: value})

    def _set(self, **changes: Any) -> None:
        self._field = replace(self._field, **changes)

    def _wrong(self, name: str, said: str) -> None:
        self.problems.append(f"{self._path}.{name}: {said}")


def _is_of(type_: Type, text: str) -> bool:
    readers: dict[str, Any] = {
        "integer": int,
        "number": Decimal,
        "date": date.fromisoformat,
        "time": time.fromisoformat,
        "timestamp": datetime.fromisoformat,
    }
    try:
        readers[type_](text)
    except (ValueError, InvalidOperation):
        return False
    return True
