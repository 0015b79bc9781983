"""Which column of a file is which field: said, or guessed by name."""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.tables.resource import Resource

ROW_NUMBER_COLUMN, ERRORS_COLUMN = "_row", "_errors"  # columns that a file of failed rows adds
COLUMN_SUGGESTIONS_MAX = (
    10  # columns that may have been meant for another: among a thousand fields, a guess takes 70 ms
)


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """What became of a file's columns: where each goes, and all that is wrong, at once."""

    mapping: dict[str, str]
    unknown: list[str]
    missing: list[str]
    problems: list[str]

    @property
    def is_valid(self) -> bool:
        return not self.problems


def map_columns(columns: Sequence[str], resource: Resource, explicit: Mapping[str, str] | None = None) -> ColumnMapping:
    """Columns that were said to be a field are; others go by their name, whatever its case and punctuation.

    A column that was mapped to nothing (an empty name) is left out, and so are ours and others that begin with ``_``,
    unless a field is called just so.
    """
    explicit = dict(explicit or {})
    problems = [f"there is no column {name!r} to map" for name in explicit if name not in columns]
    names = {normalize_column_name(name): name for name in reversed(resource.field_names)} | {
        name: name for name in resource.field_names
    }
    mapping: dict[str, str] = {}
    unknown: list[str] = []
    for column in columns:
        if column in explicit:
            target = explicit[column]
            if target and target not in resource.field_names:
                suggestion = _format_field_suggestion(target, resource)
                problems.append(f"column {column!r} is mapped to {target!r}, which is no field{suggestion}")
        elif column in (ROW_NUMBER_COLUMN, ERRORS_COLUMN) or (
            column.startswith("_") and column not in resource.field_names
        ):
            continue
        else:
            target = names.get(column) or names.get(
                normalize_column_name(column) or column, ""
            )  # only punctuation is like nothing else
            if not target:
                unknown.append(column)
        if target:
            mapping[column] = target
    for at, column in enumerate(unknown):
        similar = _format_field_suggestion(column, resource) if at < COLUMN_SUGGESTIONS_MAX else ""
        problems.append(f"column {column!r} is no field of {resource.name}{similar}")
    problems += _find_duplicate_target_problems(mapping)
    missing = _list_missing_fields(mapping, resource)
    problems += [f"there is no column for {name!r}, which is required" for name in missing]
    return ColumnMapping(mapping, unknown, missing, problems)


def normalize_column_name(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).casefold()


def _list_missing_fields(mapping: Mapping[str, str], resource: Resource) -> list[str]:
    given = set(mapping.values())
    return [field.name for field in resource.fields if field.is_required_for_insert and field.name not in given]


def _find_duplicate_target_problems(mapping: Mapping[str, str]) -> list[str]:
    by_field: dict[str, list[str]] = {}
    for column, name in mapping.items():
        by_field.setdefault(name, []).append(column)
    return [
        f"columns {', '.join(map(repr, columns))} are all {name!r}"
        for name, columns in by_field.items()
        if len(columns) > 1
    ]


def _format_field_suggestion(name: str, resource: Resource) -> str:
    near = difflib.get_close_matches(name, resource.field_names, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
