"""What an export of a table does, decided once, when it is asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.core.errors import InvalidInput, InvalidRequest
from tidemill.core.file_format import Compression, FileFormat, OutputColumn, OutputFileSpec
from tidemill.core.suggest import suggest_similar_quoted
from tidemill.exports.filters import FilterCondition, RequestProblem, TypedFilter, build_filter_object, resolve_filters
from tidemill.tables.resource import Field, Resource, TableName
from tidemill.tables.values.column_texts import truncate_for_error

_UNSAFE_NAME_CHARS_PATTERN = re.compile(r"[^A-Za-z0-9_-]+")
EXPORT_FILE_RESOURCE_MAX_CHARS = 80  # characters of a resource's name in the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExportRequest:
    """What is asked of an export, in the words of a request. Without ``fields`` it is all of them."""

    resource: str
    fields: tuple[str, ...] = ()
    filters: tuple[FilterCondition, ...] = ()
    order: tuple[str, ...] = ()  # names of fields; one that begins with a minus is the other way round
    format: str = FileFormat.CSV
    compression: str = Compression.NONE
    spreadsheet_safe: bool = False

    def to_params(self) -> dict[str, object]:
        """To be kept and shown, and to be compared when its key comes again."""
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
    resource: str
    table: TableName
    fields: tuple[Field, ...]
    filters: tuple[TypedFilter, ...] = ()
    order: tuple[SortColumn, ...] = ()
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    spreadsheet_safe: bool = False

    @property
    def form(self) -> OutputFileSpec:
        columns = tuple(OutputColumn(field.name, field.type, field.sql_type) for field in self.fields)
        return OutputFileSpec(self.format, columns, self.compression, self.spreadsheet_safe)

    @property
    def columns(self) -> list[str]:
        """Every column of the table that the export reads, each once."""
        columns = [field.column for field in self.fields]
        columns += [condition.column for condition in self.filters]
        columns += [sort.column for sort in self.order]
        return list(dict.fromkeys(columns))

    def build_file_name(self, key: str = "") -> str:
        """Safe wherever it is saved: ``users-J20261115_000777.csv.gz``."""
        named = (
            _UNSAFE_NAME_CHARS_PATTERN.sub("_", self.resource).strip("_")[:EXPORT_FILE_RESOURCE_MAX_CHARS] or "export"
        )
        return "-".join(filter(None, (named, key))) + self.form.suffix


def build_table_export_plan(request: TableExportRequest, resource: Resource) -> TableExportPlan:
    """The plan of an export of this resource; InvalidRequest says all that is wrong with the request at once."""
    problems: list[RequestProblem] = []
    fields = _choose_fields(request.fields, resource, problems)
    filters, wrong = resolve_filters(request.filters, resource)
    problems += wrong
    order = _parse_order(request.order, resource, problems)
    format_ = _parse_choice(FileFormat, "format", request.format, problems)
    compression = _parse_choice(Compression, "compression", request.compression, problems)
    if format_ and compression:
        problems += _check_format_combination(format_, compression, spreadsheet_safe=request.spreadsheet_safe)
    if problems or format_ is None or compression is None:
        raise InvalidRequest([reason for _, reason in problems], [place for place, _ in problems])
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


def _check_format_combination(
    format_: FileFormat, compression: Compression, *, spreadsheet_safe: bool
) -> list[RequestProblem]:
    """What does not go together."""
    try:
        OutputFileSpec(format_, (), compression, spreadsheet_safe)
    except InvalidInput as error:
        return [(("format",), str(error))]
    return []


def _choose_fields(names: Sequence[str], resource: Resource, problems: list[RequestProblem]) -> tuple[Field, ...]:
    problems += [
        (("fields",), _describe_unknown_field(name, resource)) for name in names if name not in resource.field_names
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [(("fields",), f"field {truncate_for_error(name)!r} is there twice") for name in twice]
    known = {field.name: field for field in resource.fields}
    return tuple(known[name] for name in names if name in known) if names else resource.fields


def _describe_unknown_field(name: str, resource: Resource) -> str:
    similar = suggest_similar_quoted(name, resource.field_names)
    return f"{resource.name} has no field {truncate_for_error(name)!r}{similar}"


def _parse_order(names: Sequence[str], resource: Resource, problems: list[RequestProblem]) -> tuple[SortColumn, ...]:
    """By the natural key, unless it is said."""
    found = []
    for said in names or resource.key:
        name = said if said in resource.field_names else said.removeprefix("-")
        if name not in resource.field_names:
            problems.append((("order",), f"order: {_describe_unknown_field(name, resource)}"))
        elif resource.get_field(name).type == "json":
            reason = f"order: {truncate_for_error(name)!r} is {resource.get_field(name).sql_type}, which has no order"
            problems.append((("order",), reason))
        else:
            found.append(SortColumn(resource.get_field(name).column, is_descending=name != said))
    return tuple(found)


def _parse_choice(words: Any, name: str, said: str, problems: list[RequestProblem]) -> Any:
    if said in words.__members__.values():
        return words(said)
    problems.append(((name,), f"there is no {name} {truncate_for_error(said)!r}; known are {', '.join(words)}"))
    return None


def parse_file_extension(name: str) -> tuple[FileFormat | None, Compression]:
    """What the name of a file says of its form: ``users.csv.gz`` is CSV in gzip."""
    stem, compression = name.lower(), Compression.NONE
    for ending, packed in ((".gz", Compression.GZIP), (".zst", Compression.ZSTD)):
        if stem.endswith(ending):
            stem, compression = stem.removesuffix(ending), packed
    ending = stem.rpartition(".")[2] if "." in stem else ""
    named = {"jsonl": FileFormat.NDJSON} | {str(one): one for one in FileFormat}
    return named.get(ending), compression
