"""What an export of a table does, decided once, when it is asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.domain.errors import InvalidInput, InvalidRequest
from tidemill.domain.exporting.filters import Condition, Filter, Wrong, as_object, typed
from tidemill.domain.exporting.near import like
from tidemill.domain.form import Column, Compression, FileFormat, Form
from tidemill.domain.resource import Field, Resource, Table
from tidemill.domain.values.problem import shown

_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
NAME_MAX = 80  # characters of a resource's name in the name of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class TableExport:
    """What is asked of an export, in the words of a request. Without ``fields`` it is all of them."""

    resource: str
    fields: tuple[str, ...] = ()
    filters: tuple[Condition, ...] = ()
    order: tuple[str, ...] = ()  # names of fields; one that begins with a minus is the other way round
    format: str = FileFormat.CSV
    compression: str = Compression.NONE
    spreadsheet_safe: bool = False

    def words(self) -> dict[str, Any]:
        """To be kept and shown, and to be compared when its key comes again."""
        return {
            "resource": self.resource,
            "fields": list(self.fields),
            "filters": as_object(self.filters),
            "order": list(self.order),
            "format": str(self.format),
            "compression": str(self.compression),
            "spreadsheet_safe": self.spreadsheet_safe,
        }


@dataclass(frozen=True, slots=True)
class Order:
    column: str
    is_descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportPlan:
    resource: str
    table: Table
    fields: tuple[Field, ...]
    filters: tuple[Filter, ...] = ()
    order: tuple[Order, ...] = ()
    format: FileFormat = FileFormat.CSV
    compression: Compression = Compression.NONE
    spreadsheet_safe: bool = False

    @property
    def form(self) -> Form:
        columns = tuple(Column(field.name, field.type, field.sql_type) for field in self.fields)
        return Form(self.format, columns, self.compression, self.spreadsheet_safe)

    def file_name(self, key: str = "") -> str:
        """Safe wherever it is saved: ``users-J20261115_000777.csv.gz``."""
        named = _UNSAFE.sub("_", self.resource).strip("_")[:NAME_MAX] or "export"
        return "-".join(filter(None, (named, key))) + self.form.ending


def make_plan(request: TableExport, resource: Resource) -> ExportPlan:
    """The plan of an export of this resource; InvalidRequest says all that is wrong with the request at once."""
    problems: list[Wrong] = []
    fields = _chosen(request.fields, resource, problems)
    filters, wrong = typed(request.filters, resource)
    problems += wrong
    order = _order(request.order, resource, problems)
    format_ = _word(FileFormat, "format", request.format, problems)
    compression = _word(Compression, "compression", request.compression, problems)
    if format_ and compression:
        problems += _clashes(format_, compression, spreadsheet_safe=request.spreadsheet_safe)
    if problems or format_ is None or compression is None:
        raise InvalidRequest([reason for _, reason in problems], [place for place, _ in problems])
    return ExportPlan(
        resource=resource.name,
        table=resource.table,
        fields=fields,
        filters=tuple(filters),
        order=order,
        format=format_,
        compression=compression,
        spreadsheet_safe=request.spreadsheet_safe,
    )


def _clashes(format_: FileFormat, compression: Compression, *, spreadsheet_safe: bool) -> list[Wrong]:
    """What does not go together."""
    try:
        Form(format_, (), compression, spreadsheet_safe)
    except InvalidInput as error:
        return [(("format",), str(error))]
    return []


def _chosen(names: Sequence[str], resource: Resource, problems: list[Wrong]) -> tuple[Field, ...]:
    problems += [
        (("fields",), f"{resource.name} has no field {shown(name)!r}{like(name, resource.names)}")
        for name in names
        if name not in resource.names
    ]
    twice = sorted({name for name in names if names.count(name) > 1})
    problems += [(("fields",), f"field {shown(name)!r} is there twice") for name in twice]
    known = {field.name: field for field in resource.fields}
    return tuple(known[name] for name in names if name in known) if names else resource.fields


def _order(names: Sequence[str], resource: Resource, problems: list[Wrong]) -> tuple[Order, ...]:
    """By the natural key, unless it is said."""
    found = []
    for said in names or resource.key:
        name = said if said in resource.names else said.removeprefix("-")
        if name not in resource.names:
            reason = f"order: {resource.name} has no field {shown(name)!r}{like(name, resource.names)}"
            problems.append((("order",), reason))
        elif resource.field(name).type == "json":
            reason = f"order: {shown(name)!r} is {resource.field(name).sql_type}, which has no order"
            problems.append((("order",), reason))
        else:
            found.append(Order(resource.field(name).column, is_descending=name != said))
    return tuple(found)


def _word(words: Any, name: str, said: str, problems: list[Wrong]) -> Any:
    if said in words.__members__.values():
        return words(said)
    problems.append(((name,), f"there is no {name} {shown(said)!r}; known are {', '.join(words)}"))
    return None


def by_ending(name: str) -> tuple[FileFormat | None, Compression]:
    """What the name of a file says of its form: ``users.csv.gz`` is CSV in gzip."""
    stem, compression = name.lower(), Compression.NONE
    for ending, packed in ((".gz", Compression.GZIP), (".zst", Compression.ZSTD)):
        if stem.endswith(ending):
            stem, compression = stem.removesuffix(ending), packed
    ending = stem.rpartition(".")[2] if "." in stem else ""
    named = {"jsonl": FileFormat.NDJSON} | {str(one): one for one in FileFormat}
    return named.get(ending), compression
