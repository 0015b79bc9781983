"""Requests to export a table, and the validated plans that are built from them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import InvalidInput, InvalidRequest, format_suggestion
from tidemill.core.file_format import Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.exports.filters import (
    FilterCondition,
    RequestProblem,
    TypedFilter,
    build_filter_object,
    resolve_filters_and_problems,
)
from tidemill.tables.resource import Field, Resource, TableName
from tidemill.tables.values.column_texts import clean_value_for_error

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
