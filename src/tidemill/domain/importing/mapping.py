"""Which column of a file is which field: said, or guessed by name."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.domain.importing.failures import ERRORS, ROW
from tidemill.domain.resource import Resource

GUESSES = 10  # columns that may have been meant for another: among a thousand fields, a guess takes 70 ms


@dataclass(frozen=True, slots=True)
class Columns:
    """What became of a file's columns: where each goes, and all that is wrong, at once."""

    mapping: dict[str, str]
    unknown: list[str]
    missing: list[str]
    problems: list[str]

    @property
    def is_good(self) -> bool:
        return not self.problems


def guess(columns: Sequence[str], resource: Resource, said: Mapping[str, str] | None = None) -> Columns:
    """Columns that were said to be a field are; others go by their name, whatever its case and punctuation.

    A column that was mapped to nothing (an empty name) is left out, and so are ours and others that begin with ``_``,
    unless a field is called just so.
    """
    said = dict(said or {})
    problems = [f"there is no column {name!r} to map" for name in said if name not in columns]
    names = {fold(name): name for name in reversed(resource.names)} | {name: name for name in resource.names}
    mapping: dict[str, str] = {}
    unknown: list[str] = []
    for column in columns:
        if column in said:
            target = said[column]
            if target and target not in resource.names:
                problems.append(
                    f"column {column!r} is mapped to {target!r}, which is no field{_like(target, resource)}"
                )
        elif column in (ROW, ERRORS) or (column.startswith("_") and column not in resource.names):
            continue
        else:
            target = names.get(column) or names.get(fold(column) or column, "")  # only punctuation is like nothing else
            if not target:
                unknown.append(column)
        if target:
            mapping[column] = target
    problems += [
        f"column {column!r} is no field of {resource.name}{_like(column, resource) if at < GUESSES else ''}"
        for at, column in enumerate(unknown)
    ]
    problems += _twice(mapping)
    missing = _missing(mapping, resource)
    problems += [f"there is no column for {name!r}, which is required" for name in missing]
    return Columns(mapping, unknown, missing, problems)


def fold(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _missing(mapping: Mapping[str, str], resource: Resource) -> list[str]:
    given = set(mapping.values())
    return [field.name for field in resource.fields if field.is_needed and field.name not in given]


def _twice(mapping: Mapping[str, str]) -> list[str]:
    by_field: dict[str, list[str]] = {}
    for column, name in mapping.items():
        by_field.setdefault(name, []).append(column)
    return [
        f"columns {', '.join(map(repr, columns))} are all {name!r}"
        for name, columns in by_field.items()
        if len(columns) > 1
    ]


def _like(name: str, resource: Resource) -> str:
    near = difflib.get_close_matches(name, resource.names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
