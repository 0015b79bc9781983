"""Maps the columns of a file to fields, as the request says or by name."""

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.core.errors import escape_unprintable
from tidemill.tables.resource import Reference, Resource, normalize_column_name

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
    explicit, given, fields = dict(explicit or {}), set(columns), set(resource.input_fields)
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
            target = target or _find_field_of_lookup(column, resource) or ""
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
    return aliases | normalized | {name: name for name in resource.input_fields}


def find_fields_named_by(name: str, references: Iterable[Reference]) -> list[str]:
    """Return the fields whose rows a column with this name may name: ``team`` for ``team_id``, or for table ``teams``.

    Names of fields win over names of tables.
    """
    name = normalize_column_name(name)
    single = [one for one in references if len(one.fields) == 1]
    by_field = [one.fields[0] for one in single if normalize_column_name(one.fields[0]).removesuffix("id") == name]
    by_table = [
        one.fields[0]
        for one in single
        if name in ((table := normalize_column_name(one.table.name)), table.removesuffix("s"))
    ]
    return list(dict.fromkeys(by_field or by_table))


def _find_field_of_lookup(column: str, resource: Resource) -> str | None:
    """Return the input field of a lookup that a column with this name contains, if only one fits."""
    references = [Reference((one.field,), one.table, (one.key,)) for one in resource.lookups]
    exact = find_fields_named_by(column, references)
    if exact:
        return exact[0] if len(exact) == 1 else None
    own, name = set(resource.field_names), normalize_column_name(column)
    fitting = []
    for lookup in resource.lookups:
        for field in lookup.by:
            searched = normalize_column_name(field.column)
            is_named_by_reference = lookup.field in find_fields_named_by(name.removesuffix(searched), references)
            if field.name == lookup.field:
                fitting += [field.name] if name.endswith(searched) and is_named_by_reference else []
            elif field.name not in own and (name == searched or (name.endswith(searched) and is_named_by_reference)):
                fitting.append(field.name)
    return fitting[0] if len(set(fitting)) == 1 else None


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
    near = difflib.get_close_matches(name, list(resource.input_fields), n=1)
    return f' (did you mean "{near[0]}"?)' if near else ""
