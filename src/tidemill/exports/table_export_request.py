"""Requests to export a table: fields, filters and order, and the validated plans that are built from them."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.core.errors import InvalidInput, InvalidRequest, format_suggestion
from tidemill.core.file_format import ColumnType, Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.tables.resource import Field, Resource, TableName
from tidemill.tables.values.column_texts import clean_value_for_error, is_storable_text
from tidemill.tables.values.type_readers import TYPE_READERS, normalize_array_column

FILTER_OPERATORS: Final = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "like", "is_null", "between")
FILTERS_MAX: Final = 100
FILTER_VALUES_MAX: Final = 10_000
_ORDERED_OPERATORS: Final = ("lt", "lte", "gt", "gte", "between")
_LIST_OPERATORS: Final = ("in", "between")
_FILTER_PARAMETER_PATTERN = re.compile(r"filter\[([^\[\]]*)\](?:\[([^\[\]]*)\])?")
_CONDITION_PATTERN = re.compile(r"([^\[\]=]+)(?:\[([^\[\]=]*)\])?=(.*)", re.DOTALL)
_TRAILING_ESCAPE_PATTERN = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_FILTERED_TEXT_TYPES = ("text", "character varying", "character", "bpchar", "citext", "name")
RequestProblem = tuple[tuple[str, ...], str]
"""The path of a problem in a request, and its message."""
_TRUE_VALUES, _FALSE_VALUES = ("", "true", "t", "yes", "1"), ("false", "f", "no", "0")


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """A condition as requested, not validated yet: its field may not exist."""

    field: str
    op: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypedFilter:
    """A condition that is valid for its field; the values are in the text format of PostgreSQL."""

    field: str
    column: str
    type: ColumnType
    sql_type: str
    op: str
    values: tuple[str, ...]


def parse_query_filters(pairs: Iterable[tuple[str, str]]) -> list[FilterCondition]:
    """Parse parameters such as ``filter[role][in]=admin,editor``; the default operator is ``eq``.

    Parameters with other names are ignored. Raises InvalidInput for malformed filters.
    """
    conditions = []
    for name, text in pairs:
        if name.startswith("filter"):
            match = _FILTER_PARAMETER_PATTERN.fullmatch(name)
            if match is None:
                raise InvalidInput(
                    f'Invalid filter parameter "{clean_value_for_error(name)}". '
                    "Use filter[FIELD]=VALUE or filter[FIELD][OPERATOR]=VALUE."
                )
            conditions.append(_make_condition(match[1], match[2], text))
    return conditions


def parse_filter_condition(text: str) -> FilterCondition:
    """Parse a condition such as ``role[in]=admin,editor`` or ``role=admin``, also in the form ``filter[role]=admin``.

    Raises InvalidInput if the text has none of these forms.
    """
    name, separator, value = text.partition("=")
    as_query = _FILTER_PARAMETER_PATTERN.fullmatch(name) if separator else None
    # "filter[in]=x" is a condition on a field named "filter".
    if as_query is not None and (as_query[2] is not None or as_query[1] not in FILTER_OPERATORS):
        return _make_condition(as_query[1], as_query[2], value)
    match = _CONDITION_PATTERN.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f'Invalid condition "{clean_value_for_error(text)}". Use FIELD=VALUE or FIELD[OPERATOR]=VALUE.'
        )
    return _make_condition(match[1].strip(), match[2], match[3])


def parse_filter_object(filters: Mapping[str, Any]) -> list[FilterCondition]:
    """Parse an object such as ``{"role": {"in": ["admin", "editor"]}}``; ``{"role": "admin"}`` means ``eq``.

    Raises InvalidInput for malformed conditions.
    """
    conditions = []
    for field, operators in filters.items():
        if operators == {}:
            raise InvalidInput(f'Filter "{clean_value_for_error(field)}" is empty. Use a value or {{operator: value}}.')
        for op, operand in (operators if isinstance(operators, Mapping) else {"eq": operators}).items():
            values = operand if isinstance(operand, Sequence) and not isinstance(operand, str) else [operand]
            if any(isinstance(value, Mapping | list) for value in values):
                raise InvalidInput(
                    f'Filter "{clean_value_for_error(field)}": a value must be a string, a number, true or false'
                )
            texts = tuple(_convert_filter_value_to_text(value, field, op) for value in values)
            conditions.append(FilterCondition(field, str(op), texts))
    return conditions


def build_filter_object(conditions: Iterable[FilterCondition]) -> dict[str, dict[str, list[str]]]:
    """Return the conditions in the form in which the job stores them and the API returns them."""
    filters: dict[str, dict[str, list[str]]] = {}
    for condition in conditions:
        filters.setdefault(condition.field, {}).setdefault(condition.op, []).extend(condition.values)
    return filters


def resolve_filters_and_problems(
    conditions: Sequence[FilterCondition], resource: Resource
) -> tuple[list[TypedFilter], list[RequestProblem]]:
    """Return the valid conditions, and a problem for each invalid one."""
    if len(conditions) > FILTERS_MAX:
        return [], [(("filters",), f"Too many filters: {len(conditions)}; the maximum is {FILTERS_MAX}")]
    filters: list[TypedFilter] = []
    problems: list[RequestProblem] = []
    for condition in conditions:
        try:
            filters.append(_resolve_filter(condition, resource))
        except InvalidInput as error:
            problems.append((("filters", condition.field), str(error)))
    return filters, problems


def _make_condition(field: str, op: str | None, text: str) -> FilterCondition:
    op = "eq" if op is None else op
    return FilterCondition(field, op, _split_values(text) if op in _LIST_OPERATORS else (text,))


def _split_values(text: str) -> tuple[str, ...]:
    """Split comma-separated values; a value that contains a comma is in double quotes."""
    if not text:
        return ()
    try:
        (values,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError):
        raise InvalidInput(
            f'Invalid list of values "{clean_value_for_error(text)}". '
            "Separate values with commas and put values that contain a comma in double quotes."
        ) from None
    return tuple(values)


def _convert_filter_value_to_text(value: Any, field: str, op: Any) -> str:
    if value is None:
        raise InvalidInput(
            f'Filter "{clean_value_for_error(field)}": "{op}" does not accept null. Use {{"is_null": true}}.'
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _resolve_filter(condition: FilterCondition, resource: Resource) -> TypedFilter:
    named, op = clean_value_for_error(condition.field), condition.op
    if condition.field not in resource.field_names:
        similar = format_suggestion(condition.field, resource.field_names)
        raise InvalidInput(f'Filter "{named}": unknown field in "{resource.name}"{similar}')
    if op not in FILTER_OPERATORS:
        near = format_suggestion(op, FILTER_OPERATORS) or f"; use one of {', '.join(FILTER_OPERATORS)}"
        raise InvalidInput(f'Filter "{named}": unknown operator "{clean_value_for_error(op)}"{near}')
    field = resource.get_field(condition.field)
    if op not in list_operators_of_field(field):
        raise InvalidInput(f'Filter "{named}": operator "{op}" does not support type {field.sql_type}')
    _check_value_count(condition)
    values = tuple(_parse_operand(field, op, text) for text in condition.values)
    return TypedFilter(field.name, field.column, field.type, field.sql_type, op, values)


def list_operators_of_field(field: Field) -> tuple[str, ...]:
    match field.type:
        case "json":
            return ("is_null",)
        case "boolean" | "array" | "bytes":
            return ("eq", "ne", "in", "is_null")
        case "text" | "other":
            return FILTER_OPERATORS
        case _:
            return tuple(op for op in FILTER_OPERATORS if op != "like")


def _is_text_column(field: Field) -> bool:
    """Return whether the column has a text type, and not an enum type of the database."""
    return field.sql_type.partition("(")[0].rpartition(".")[2] in _FILTERED_TEXT_TYPES


def _check_value_count(condition: FilterCondition) -> None:
    count, op, field = len(condition.values), condition.op, clean_value_for_error(condition.field)
    if op == "between" and count != 2:  # noqa: PLR2004
        raise InvalidInput(f'Filter "{field}": operator "between" requires 2 values, got {count}')
    if op == "in" and not 0 < count <= FILTER_VALUES_MAX:
        raise InvalidInput(f'Filter "{field}": operator "in" requires 1 to {FILTER_VALUES_MAX} values, got {count}')
    if op not in _LIST_OPERATORS and count != 1:
        raise InvalidInput(f'Filter "{field}": operator "{op}" requires 1 value, got {count}')


def _parse_operand(field: Field, op: str, text: str) -> str:
    if op == "is_null":
        if text.lower() not in (*_TRUE_VALUES, *_FALSE_VALUES):
            raise InvalidInput(
                f'Filter "{field.name}": "is_null" must be true or false, not "{clean_value_for_error(text)}"'
            )
        return "true" if text.lower() in _TRUE_VALUES else "false"
    if not is_storable_text(text):
        raise InvalidInput(f'Filter "{field.name}": the value contains a character that PostgreSQL cannot store')
    if op == "like":
        if _TRAILING_ESCAPE_PATTERN.search(text):
            raise InvalidInput(f'Filter "{field.name}": the pattern must not end with a single backslash')
        return text
    return _parse_field_value(field, text)


def _parse_field_value(field: Field, text: str) -> str:
    """Return the value in PostgreSQL's text format. The rules of the field do not apply: the value is not stored."""
    if field.type not in ("text", "other"):
        text = text.strip()
    (value,), problems = (normalize_array_column if field.type == "array" else TYPE_READERS[field.type])(field, [text])
    shown = "…" if field.sensitive else f'"{clean_value_for_error(text)}"'
    if problems:
        raise InvalidInput(f'Filter "{field.name}": {shown} {problems[0]}')
    if field.enum and not _is_text_column(field) and value not in field.enum:  # PostgreSQL would raise an error
        choices = ", ".join(f'"{choice}"' for choice in field.enum)
        raise InvalidInput(f'Filter "{field.name}": {shown} is not one of {choices}')
    return value or ""


_UNSAFE_NAME_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9_-]+")
EXPORT_FILE_RESOURCE_MAX_CHARS = 80  # of the resource name in a file name


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExportRequest:
    """An export as requested, not validated yet. Empty ``fields`` means all."""

    resource: str
    fields: tuple[str, ...] = ()
    filters: tuple[FilterCondition, ...] = ()
    order: tuple[str, ...] = ()  # field names; a leading minus sorts descending
    format: str = FileFormat.CSV
    compression: str = Compression.NONE
    spreadsheet_safe: bool = False

    def to_params(self) -> dict[str, Any]:
        """Return the request as JSON, to store it, show it, and compare it when an idempotency key is repeated."""
        return {
            "resource": self.resource,
            "fields": list(self.fields),
            "filters": build_filter_object(self.filters),
            "order": list(self.order),
            "format": str(self.format),
            "compression": str(self.compression),
            "spreadsheet_safe": self.spreadsheet_safe,
        }


@dataclass(frozen=True, slots=True)
class SortColumn:
    column: str
    is_descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExportPlan:
    """An export whose fields, filters and order are valid for the table."""

    resource: str
    table: TableName
    fields: tuple[Field, ...]
    filters: tuple[TypedFilter, ...] = ()
    order: tuple[SortColumn, ...] = ()
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    spreadsheet_safe: bool = False

    @property
    def file_spec(self) -> OutputFileSpec:
        columns = tuple(OutputColumn(field.name, field.type, field.sql_type) for field in self.fields)
        return OutputFileSpec(self.format, columns, self.compression, self.spreadsheet_safe)

    @property
    def columns(self) -> list[str]:
        """All columns of the table that the export reads, without duplicates."""
        columns = [field.column for field in self.fields]
        columns += [condition.column for condition in self.filters]
        columns += [sort.column for sort in self.order]
        return list(dict.fromkeys(columns))

    def build_file_name(self, key: str = "") -> str:
        """Return a name that every file system accepts, such as ``users-J20261115_000777.csv.gz``."""
        stem = (
            _UNSAFE_NAME_CHARS_PATTERN.sub("_", self.resource).strip("_")[:EXPORT_FILE_RESOURCE_MAX_CHARS] or "export"
        )
        return "-".join(filter(None, (stem, key))) + self.file_spec.suffix


def build_table_export_plan(request: TableExportRequest, resource: Resource) -> TableExportPlan:
    """Return the plan to export this resource; raise InvalidRequest with every problem in the request."""
    problems: list[RequestProblem] = []
    fields = _choose_fields(request.fields, resource, problems)
    filters, filter_problems = resolve_filters_and_problems(request.filters, resource)
    problems += filter_problems
    order = _parse_order(request.order, resource, problems)
    format_ = _parse_choice(FileFormat, "format", request.format, problems)
    compression = _parse_choice(Compression, "compression", request.compression, problems)
    if format_ and compression:
        problems += _find_format_problems(format_, compression, spreadsheet_safe=request.spreadsheet_safe)
    if problems or format_ is None or compression is None:
        raise InvalidRequest([reason for _, reason in problems], [path for path, _ in problems])
    return TableExportPlan(
        resource=resource.name,
        table=resource.table,
        fields=fields,
        filters=tuple(filters),
        order=order,
        format=format_,
        compression=compression,
        spreadsheet_safe=request.spreadsheet_safe,
    )


def _find_format_problems(
    format_: FileFormat, compression: Compression, *, spreadsheet_safe: bool
) -> list[RequestProblem]:
    """Return a problem if these options cannot be combined."""
    try:
        OutputFileSpec(format_, (), compression, spreadsheet_safe)
    except InvalidInput as error:
        return [(("format",), str(error))]
    return []


def _choose_fields(names: Sequence[str], resource: Resource, problems: list[RequestProblem]) -> tuple[Field, ...]:
    problems += [
        (("fields",), f"Invalid fields: {_describe_unknown_field(name, resource)}")
        for name in names
        if name not in resource.field_names
    ]
    duplicates = sorted({name for name in names if names.count(name) > 1})
    problems += [
        (("fields",), f'Invalid fields: "{clean_value_for_error(name)}" is listed twice') for name in duplicates
    ]
    known = {field.name: field for field in resource.fields}
    return tuple(known[name] for name in names if name in known) if names else resource.fields


def _describe_unknown_field(name: str, resource: Resource) -> str:
    similar = format_suggestion(name, resource.field_names)
    return f'"{resource.name}" has no field "{clean_value_for_error(name)}"{similar}'


def _parse_order(names: Sequence[str], resource: Resource, problems: list[RequestProblem]) -> tuple[SortColumn, ...]:
    """Return the columns to sort by; by default those of the natural key."""
    columns = []
    for text in names or resource.key:
        name = text if text in resource.field_names else text.removeprefix("-")
        if name not in resource.field_names:
            problems.append((("order",), f"Invalid order: {_describe_unknown_field(name, resource)}"))
        elif resource.get_field(name).type == "json":
            sql_type = resource.get_field(name).sql_type
            problems.append(
                (("order",), f'Invalid order: cannot sort "{clean_value_for_error(name)}" of type {sql_type}')
            )
        else:
            columns.append(SortColumn(resource.get_field(name).column, is_descending=name != text))
    return tuple(columns)


def _parse_choice(choices: Any, name: str, value: str, problems: list[RequestProblem]) -> Any:
    """Return the member of an enum; for an unknown value, add a problem and return None."""
    if value in choices.__members__.values():
        return choices(value)
    problems.append(((name,), f'Unknown {name} "{clean_value_for_error(value)}". Use one of {", ".join(choices)}.'))
    return None


def parse_file_extension(name: str) -> tuple[FileFormat | None, Compression]:
    """Return the format, None if unknown, and the compression of a file name: ``users.csv.gz`` is CSV with gzip."""
    stem, compression = name.lower(), Compression.NONE
    for suffix, compression_of_suffix in ((".gz", Compression.GZIP), (".zst", Compression.ZSTD)):
        if stem.endswith(suffix):
            stem, compression = stem.removesuffix(suffix), compression_of_suffix
    extension = stem.rpartition(".")[2] if "." in stem else ""
    formats = {"jsonl": FileFormat.NDJSON} | {str(format_): format_ for format_ in FileFormat}
    return formats.get(extension), compression
