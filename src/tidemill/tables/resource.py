"""A resource: a table that rows are imported into or exported from, its fields with their rules, and its key."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, Protocol

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import ColumnType, is_text_type
from tidemill.core.principal import Role

"""What a field holds. ``other`` is any type of PostgreSQL that we do not read ourselves: the server judges its text."""

BUILTIN_NORMALIZERS = ("trim", "collapse", "lower", "upper")
PROTECTED_SCHEMAS = ("tidemill", "information_schema", "pg_catalog", "pg_toast")


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str
    name: str

    def __str__(self) -> str:
        return ".".join(_quote_identifier(part) for part in (self.schema, self.name))

    @property
    def is_in_protected_schema(self) -> bool:
        """Our own tables and the server's are nobody's target."""
        return self.schema in PROTECTED_SCHEMAS or self.schema.startswith("pg_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column as files and requests see it. ``name`` is theirs, ``column`` the table's."""

    name: str
    column: str
    type: ColumnType
    sql_type: str = "text"  # as PostgreSQL writes it: "numeric(10,2)", "public.mood", "integer[]"
    required: bool = False
    nullable: bool = True  # whether the column takes NULL: one that need not be given may still not be empty
    default: str | None = None  # what stands for an empty value, in the text form of the type
    filled: bool = False  # the table fills it by itself when it is left out
    enum: tuple[str, ...] = ()
    pattern: str | None = None  # the whole value matches it, as re.fullmatch says
    pattern_says: str | None = None  # what a value that does not match should have been: "an e-mail address"
    min_length: int | None = None
    max_length: int | None = None
    max_words: int | None = None
    minimum: str | None = None
    maximum: str | None = None
    above: str | None = None  # as minimum and maximum, but not the bound itself
    below: str | None = None
    bits: int | None = None  # of an integer: 16, 32, 64
    precision: int | None = None  # of a number: digits in all, and behind the point
    scale: int | None = None
    element: ColumnType | None = None  # of an array
    with_zone: bool = False  # of a timestamp
    judged: bool = False  # its type is a domain with conditions of its own: the server is asked, as it is of ``other``
    normalize: tuple[str, ...] = ()  # what is done to its text before anything else, by name, in order
    formats: tuple[str, ...] = ()  # of dates and times, as strptime takes them; ISO 8601 is always understood
    sensitive: bool = False  # its values are not shown in errors

    @property
    def is_required_for_insert(self) -> bool:
        """A new row must have it: nothing else would fill it."""
        return self.required and not self.filled and self.default is None


def allows_empty_text(field: Field) -> bool:
    """Whether empty text is a value of its own there."""
    if field.enum:
        return "" in field.enum
    base = field.sql_type.partition("(")[0]
    return is_text_type(field.type, field.sql_type) or base in ("bit varying", "bytea", "tsvector")


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: these fields, together, must be there in those columns."""

    fields: tuple[str, ...]
    table: TableName
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConditionalRequirement:
    """``published needs published_at``: where a field has one of these values, the others must be given."""

    field: str
    values: tuple[str, ...]
    needs: tuple[str, ...]


class HasGrants(Protocol):
    """What has grants: a resource, or its declaration."""

    @property
    def read(self) -> tuple[Role, ...]: ...
    @property
    def write(self) -> tuple[Role, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    name: str
    table: TableName
    fields: tuple[Field, ...]
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    indexed: tuple[tuple[str, ...], ...] = ()  # those of the unique sets that the table itself holds unique
    nulls_equal: tuple[tuple[str, ...], ...] = ()  # those of the unique sets in which NULL equals NULL
    references: tuple[Reference, ...] = ()
    conditions: tuple[ConditionalRequirement, ...] = ()
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    def get_field(self, name: str) -> Field:
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise InvalidInput(f"{self.name} has no field {name!r}")

    @property
    def field_names(self) -> list[str]:
        return [field.name for field in self.fields]

    def enforces_uniqueness(self, fields: tuple[str, ...], empty: Collection[str]) -> bool:
        """Whether a row that lacks some of these fields may still be one too many by them."""
        return not empty or (fields in self.nulls_equal and not any(self.get_field(name).filled for name in empty))

    @property
    def unique_sets(self) -> tuple[tuple[str, ...], ...]:
        """Every set of fields that no two rows may share; the natural key first."""
        others = [fields for fields in self.unique if fields != self.key]
        return ((self.key, *others)) if self.key in self.unique else tuple(others)


def is_granted(role: Role, resource: "HasGrants", action: Literal["read", "write"]) -> bool:
    """Whether a role may do that. An admin is a user too; what is granted to nobody is not granted to an admin."""
    granted = resource.read if action == "read" else resource.write
    return role in granted or (role is Role.ADMIN and bool(granted))


def find_resource_problems(resource: Resource) -> list[str]:
    """What is wrong with a resource, in sentences; nothing when it is sound."""
    names, problems = resource.field_names, []
    if resource.table.is_in_protected_schema:
        problems.append(f"{resource.table} is not a table that can be imported into")
    if len(set(names)) < len(names):
        problems.append("two fields have the same name")
    known = set(names)
    for said, fields in (
        ("the key", resource.key),
        *(("a unique set", fields) for fields in resource.unique),
        *(("a reference", reference.fields) for reference in resource.references),
        *(("a condition", (condition.field, *condition.needs)) for condition in resource.conditions),
    ):
        problems += [f"{said} names {name!r}, which is no field" for name in fields if name not in known]
    for condition in resource.conditions:
        allowed = next((field.enum for field in resource.fields if field.name == condition.field), ())
        strange = [value for value in condition.values if allowed and value not in allowed]
        problems += [f"a condition waits for {condition.field} = {value!r}, which cannot be" for value in strange]
    for checked in resource.fields:
        problems += [f"field {checked.name!r}: {problem}" for problem in _find_field_problems(checked)]
    return problems


def _find_field_problems(field: Field) -> list[str]:
    problems = []
    if field.pattern is not None:
        try:
            re.compile(field.pattern)
        except re.error as error:
            problems.append(f"its pattern is not a regular expression: {error}")
    if field.min_length is not None and field.max_length is not None and field.min_length > field.max_length:
        problems.append("min_length is greater than max_length")
    if field.default is not None and field.enum and field.default not in field.enum:
        problems.append(f"its default {field.default!r} is none of {', '.join(field.enum)}")
    return problems


def _quote_identifier(part: str) -> str:
    return part if re.fullmatch(r"[a-z_][a-z0-9_$]*", part) else '"' + part.replace('"', '""') + '"'


LOWER_BOUND_RULES = ("min_length", "minimum", "above")
UPPER_BOUND_RULES = ("max_length", "max_words", "maximum", "below")


def narrow_field(field: Field, rule: Mapping[str, Any]) -> Field:
    """The field with a rule more. Of two patterns the later one stays: both together have no one pattern."""
    changes = {name: _choose_narrower(field, name, value) for name, value in rule.items()}
    return replace(field, **changes)


def _choose_narrower(field: Field, name: str, value: Any) -> Any:
    before = getattr(field, name)
    if name == "enum" and before:
        return tuple(one for one in before if one in value)
    if before is None or name not in (*LOWER_BOUND_RULES, *UPPER_BOUND_RULES):
        return value
    choose: Callable[..., Any] = max if name in LOWER_BOUND_RULES else min
    return choose(before, value, key=lambda bound: to_comparable_bound(field, bound))


def to_comparable_bound(field: Field, bound: Any) -> Any:
    """A bound as it compares: numbers by value, dates by their text."""
    return Decimal(bound) if isinstance(bound, int) or field.type in ("integer", "number") else bound


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A column by the name that files have for it; ``rules`` are by the names of ``resource.Field``."""

    name: str
    column: str
    rules: Mapping[str, Any] = field(default_factory=dict)
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDeclaration:
    name: str
    table: str
    fields: tuple[DeclaredField, ...] = ()
    columns: tuple[str, ...] | None = None  # more columns that become fields; None for all columns of the table
    key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    conditions: tuple[ConditionalRequirement, ...] = ()
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def config_path(self) -> str:
        return f"resources.{self.name}"
