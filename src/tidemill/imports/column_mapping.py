"""Maps the columns of a file to fields, as the request says or by name."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.core.errors import escape_unprintable
from tidemill.tables.resource import Resource, normalize_column_name

ROW_NUMBER_COLUMN, ERRORS_COLUMN, ERROR_CODES_COLUMN = "_row", "_errors", "_error_codes"
ERROR_FILE_COLUMNS = (ROW_NUMBER_COLUMN, ERRORS_COLUMN, ERROR_CODES_COLUMN)  # columns that an error file adds
COLUMN_SUGGESTIONS_MAX = 10  # unknown columns that get a suggestion: one takes 70 ms among a thousand fields


@dataclass(frozen=True, slots=True)
class ColumnMapping:
    """The field of each column, the unknown and the missing columns, and a message for every problem."""

    mapping: dict[str, str]
    unknown: list[str]
    missing: list[str]
    problems: list[str]

    @property
    def is_valid(self) -> bool:
        return not self.problems


def map_columns(
    columns: Sequence[str],
    resource: Resource,
    explicit: Mapping[str, str] | None = None,
    *,
    set_by_rules: Collection[str] = (),
    read_by_rules: Iterable[str] = (),
) -> ColumnMapping:
    """Map columns to fields: as ``explicit`` says, else by the name or an alias, without case and punctuation.

    Ignored are columns that ``explicit`` maps to an empty name, the columns that an error file adds, and other
    columns that begin with ``_`` and are not the exact name of a field.

    Args:
        columns: The columns of the file.
        resource: The resource.
        explicit: Column -> field.
        set_by_rules: Fields that the import sets itself, so that no column may be mapped to them.
        read_by_rules: Names in rules. A column with such a name needs no field.
    """
    explicit, given, fields = dict(explicit or {}), set(columns), set(resource.field_names)
    problems = [f'Cannot map column "{name}": the file has no such column' for name in explicit if name not in given]
    names = _list_names_of_fields(resource)
    rule_names = set(map(normalize_column_name, read_by_rules))
    mapping: dict[str, str] = {}
    unknown: list[str] = []
    for column in columns:
        if column in explicit:
            target = explicit[column]
            if target and target not in fields:
                suggestion = _format_field_suggestion(target, resource)
                problems.append(f'Column "{column}" is mapped to "{target}", which is not a field{suggestion}')
        elif column in ERROR_FILE_COLUMNS or (column.startswith("_") and column not in fields):
            continue
        else:
            target = names.get(column) or names.get(normalize_column_name(column), "")
            if not target and normalize_column_name(column) not in rule_names:
                unknown.append(column)
        if target in set_by_rules:
            problems.append(
                f'Column "{column}" cannot be imported: the import sets the field "{target}" of every row itself. '
                "Ignore the column"
            )
        elif target:
            mapping[column] = target
    for at, column in enumerate(unknown):
        similar = _format_field_suggestion(column, resource) if at < COLUMN_SUGGESTIONS_MAX else ""
        problems.append(f'Column "{column}" is not a field of {resource.name}{similar}')
    problems += _find_duplicate_target_problems(mapping)
    missing = _list_missing_required_fields({*mapping.values(), *set_by_rules}, resource)
    problems += [format_missing_column(name) for name in missing]
    return ColumnMapping(mapping, unknown, missing, [escape_unprintable(problem) for problem in problems])


def has_error_file_columns(columns: Iterable[str]) -> bool:
    """Whether a file has the columns that error files add. Its formulas then have apostrophes in front."""
    return set(columns).issuperset(ERROR_FILE_COLUMNS)


def format_missing_column(name: str) -> str:
    return f'No column for the required field "{name}"'


def quote_names(names: Iterable[str]) -> str:
    """Return names for a message: quoted and separated by commas."""
    return ", ".join(f'"{name}"' for name in names)


def _list_names_of_fields(resource: Resource) -> dict[str, str]:
    """Return the field of each name that a column can have. Exact names win over normalized names, and over aliases."""
    aliases = {normalize_column_name(alias): field.name for field in resource.fields for alias in field.aliases}
    normalized = {normalize_column_name(name): name for name in reversed(resource.field_names)}
    return aliases | normalized | {name: name for name in resource.field_names}


def _list_missing_required_fields(given: Collection[str], resource: Resource) -> list[str]:
    return [field.name for field in resource.fields if field.is_required_for_insert and field.name not in given]


def _find_duplicate_target_problems(mapping: Mapping[str, str]) -> list[str]:
    by_field: dict[str, list[str]] = {}
    for column, name in mapping.items():
        by_field.setdefault(name, []).append(column)
    return [
        f'Columns {quote_names(columns)} are all mapped to "{name}"'
        for name, columns in by_field.items()
        if len(columns) > 1
    ]


def _format_field_suggestion(name: str, resource: Resource) -> str:
    near = difflib.get_close_matches(name, resource.field_names, n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""
