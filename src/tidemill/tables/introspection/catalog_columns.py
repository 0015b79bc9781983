"""Converts a column of the catalog to a field."""

from dataclasses import dataclass, replace
from typing import Any

from tidemill.core.file_format import ColumnType
from tidemill.tables.introspection.sql_expressions import parse_default_constant
from tidemill.tables.resource import Field

_COLUMN_TYPES_BY_PG_NAME: dict[str, ColumnType] = {
    "text": "text",
    "varchar": "text",
    "bpchar": "text",
    "int2": "integer",
    "int4": "integer",
    "int8": "integer",
    "numeric": "number",
    "float4": "number",
    "float8": "number",
    "bool": "boolean",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
    "uuid": "uuid",
    "json": "json",
    "jsonb": "json",
    "bytea": "bytes",
}
_INTEGER_BITS = {"int2": 16, "int4": 32, "int8": 64}
_TYPMOD_HEADER_BYTES = 4  # added by PostgreSQL to a length or precision


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column in the catalog. ``base`` is the name in pg_catalog of its type, or of its domain's base type."""

    name: str
    sql_type: str
    base: str | None
    typmod: int
    labels: tuple[str, ...]  # of an enum
    element: str | None  # of an array: the element type, or "" if it is not built in
    default: str | None
    not_null: bool
    domain_not_null: bool
    identity: str  # "a" for ALWAYS, "d" for BY DEFAULT
    generated: bool
    deterministic: bool  # whether its collation is deterministic

    @property
    def is_writable(self) -> bool:
        return not self.generated and self.identity != "a"

    @property
    def compares_like_python_text(self) -> bool:
        """Whether Python and PostgreSQL compare and match its values alike. char(n) ignores trailing spaces."""
        return self.deterministic and (self.base in ("text", "varchar") or bool(self.labels))


def build_field(column: CatalogColumn, *, has_before_triggers: bool = False) -> Field:
    """Return the field of a column. It is not required if a trigger can fill it, unless a declaration requires it."""
    type_ = get_column_type(column)
    constant = parse_default_constant(column.default, type_) if column.default is not None else None
    field = Field(
        name=column.name,
        column=column.name,
        type=type_,
        sql_type=column.sql_type,
        nullable=not (column.not_null or column.domain_not_null),
        default=constant.text if constant else None,
        filled=column.identity == "d" or (column.default is not None and constant is None),
        enum=column.labels,
        bits=_INTEGER_BITS.get(column.base or ""),
        with_zone=column.base == "timestamptz",
        **_build_type_attributes(column),
    )
    strict = column.domain_not_null or (column.not_null and not has_before_triggers)
    return replace(field, required=strict and field.default is None and not field.filled)


def get_type_by_pg_name(base: str) -> ColumnType:
    """Return the column type for a name in pg_catalog. Names of arrays begin with an underscore."""
    return "array" if base.startswith("_") else _COLUMN_TYPES_BY_PG_NAME.get(base, "other")


def get_column_type(column: CatalogColumn) -> ColumnType:
    if column.labels:
        return "text"
    if column.element is not None:
        return "array"
    return _COLUMN_TYPES_BY_PG_NAME.get(column.base or "", "other")


def _build_type_attributes(column: CatalogColumn) -> dict[str, Any]:
    """Return the length or precision in a typmod, or the element type of an array."""
    value = column.typmod - _TYPMOD_HEADER_BYTES
    if column.element is not None:
        return {"element": _COLUMN_TYPES_BY_PG_NAME.get(column.element, "other")}
    if value < 0:
        return {}
    if column.base in ("varchar", "bpchar"):
        return {"max_length": value}
    if column.base == "numeric":
        return {"precision": value >> 16 & 0xFFFF, "scale": (value & 0x7FF ^ 0x400) - 0x400}
    return {}
