"""How the records of a file are laid out: its format and the options of that format."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """A layout. An option that is None was not given: detection or the format's default decides."""

    format: str | None = None
    compression: str | None = None
    encoding: str | None = None
    delimiter: str | None = None
    quote: str | None = None  # empty: values are not quoted
    header: bool | None = None
    line_end: str | None = None
    sheet: str | int | None = None  # the name of a worksheet, or its number from 1
    keep_empty: bool | None = None

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """A layout as a job stores it."""
        return cls(**{name: value[name] for name in LAYOUT_OPTIONS if name in value})

    def to_json(self) -> dict[str, str | int | bool]:
        """The options that are given, by name."""
        return {name: value for name in LAYOUT_OPTIONS if (value := getattr(self, name)) is not None}


LAYOUT_OPTIONS = tuple(each.name for each in fields(FileLayout))
