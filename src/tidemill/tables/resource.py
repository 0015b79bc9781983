"""A resource: a table for imports and exports, with its fields, their rules and its key."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Literal, Protocol

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import ColumnType, is_text_type
from tidemill.core.principal import Role, has_role

ConstantSource = Literal["owner", "owner_id", "application"]
"""Where the value of a constant comes from: the name or the id of the import's owner, or the code that submits it."""
BUILTIN_NORMALIZERS = ("trim", "collapse", "lower", "upper")
PROTECTED_SCHEMAS = ("tidemill", "information_schema", "pg_catalog", "pg_toast")


@dataclass(frozen=True, slots=True)
class TableName:
    schema: str
    name: str

    def __str__(self) -> str:
        return ".".join(quote_identifier(part) for part in (self.schema, self.name))

    @property
    def is_in_protected_schema(self) -> bool:
        """Whether the table belongs to Tidemill or to PostgreSQL, so that imports and exports cannot use it."""
        return self.schema in PROTECTED_SCHEMAS or self.schema.startswith("pg_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A column of a resource. ``name`` is used in files and requests, ``column`` in the table."""

    name: str
    column: str
    type: ColumnType
    sql_type: str = "text"  # as PostgreSQL writes it: "numeric(10,2)", "public.mood", "integer[]"
    required: bool = False
    nullable: bool = True  # whether the column accepts NULL; an optional field can still be NOT NULL
    default: str | None = None  # replaces an empty value, in the text form of the type
    filled: bool = False  # the table generates a value if the field is omitted
    enum: tuple[str, ...] = ()
    pattern: str | None = None  # must match the whole value (re.fullmatch)
    pattern_says: str | None = None  # describes a valid value in errors: "an e-mail address"
    min_length: int | None = None
    max_length: int | None = None
    max_words: int | None = None
    minimum: str | None = None
    maximum: str | None = None
    above: str | None = None  # above and below are exclusive bounds
    below: str | None = None
    bits: int | None = None  # of an integer: 16, 32, 64
    precision: int | None = None  # of a number: total digits, and digits after the decimal point
    scale: int | None = None
    element: ColumnType | None = None  # of an array
    with_zone: bool = False  # of a timestamp
    judged: bool = False  # PostgreSQL validates the value, because its domain has rules that were not translated
    normalize: tuple[str, ...] = ()  # names of the normalizers that run first, in order
    formats: tuple[str, ...] = ()  # strptime formats of dates and times, in addition to ISO 8601
    sensitive: bool = False  # errors do not show its values
    aliases: tuple[str, ...] = ()  # other names of its column in files
    lookup: tuple[str, ...] = ()  # columns of the referenced table by which imports find the row
    create_missing: bool = False  # whether imports create the rows that they do not find

    @property
    def is_required_for_insert(self) -> bool:
        """Whether a new row must have this field, because it has no default."""
        return self.required and not self.filled and self.default is None


def allows_empty_text(field: Field) -> bool:
    """Return whether empty text is a valid value of the field."""
    if field.enum:
        return "" in field.enum
    base = field.sql_type.partition("(")[0]
    return is_text_type(field.type, field.sql_type) or base in ("bit varying", "bytea", "tsvector")


def may_lack_equality(field: Field) -> bool:
    """Return whether PostgreSQL may have no equality for the type of the field."""
    kind = field.element if field.type == "array" else field.type
    return kind in (None, "other", "json") and field.sql_type != "jsonb"


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key: the values of ``fields`` must exist in ``columns`` of ``table``."""

    fields: tuple[str, ...]
    table: TableName
    columns: tuple[str, ...]


_LENGTH = re.compile(r"\(\d+(?:,-?\d+)?\)")
_UNLIMITED_TYPES = {"character": "bpchar", "bit": "bit varying"}  # without a length, these types have a length of 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup:
    """How an import finds the row that ``field`` refers to: by other columns of the referenced table than the key."""

    field: str
    table: TableName
    key: str  # the referenced column
    by: tuple[Field, ...]  # the searched columns; the name of each is the input field that has its text
    create: bool = False  # insert rows that are not found

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(one.column for one in self.by)

    @property
    def searched_types(self) -> list[str]:
        """The types of the searched columns without length and precision: a shortened value would find another row."""
        types = [one.sql_type if '"' in one.sql_type else _LENGTH.sub("", one.sql_type) for one in self.by]
        return [_UNLIMITED_TYPES.get(one, one) for one in types]


@dataclass(frozen=True, slots=True)
class ConditionalRequirement:
    """If ``field`` has one of ``values``, the fields in ``needs`` are required: published needs published_at."""

    field: str
    values: tuple[str, ...]
    needs: tuple[str, ...]


class HasGrants(Protocol):
    """A resource or a declaration, with its grants."""

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
    indexed: tuple[tuple[str, ...], ...] = ()  # the unique sets that a unique index enforces
    nulls_equal: tuple[tuple[str, ...], ...] = ()  # the unique sets with NULLS NOT DISTINCT
    references: tuple[Reference, ...] = ()
    conditions: tuple[ConditionalRequirement, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)  # field -> name of the format of its values in files
    assume: bool = False  # imports take the likelier format if the values of a column have two
    constants: Mapping[str, str] = field(default_factory=dict)  # field -> value of every imported row
    constants_from: Mapping[str, ConstantSource] = field(default_factory=dict)  # resolved when an import is submitted
    computed: Mapping[str, str] = field(default_factory=dict)  # field -> expression
    skip: tuple[str, ...] = ()  # conditions of rows that imports skip
    owner_name: str = ""  # of an import, if a rule uses it
    undo: bool = False  # imports can be undone unless a request says otherwise
    lookups: tuple[Lookup, ...] = ()  # of one import
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    def get_field(self, name: str) -> Field:
        for candidate in self.fields:
            if candidate.name == name:
                return candidate
        raise InvalidInput(f'Resource "{self.name}" has no field "{name}"')

    @property
    def requirements(self) -> tuple[str, ...]:
        """What an import into this resource requires of a worker: the normalizers that are not built in."""
        fields = (*self.fields, *(field for lookup in self.lookups for field in lookup.by))
        names = {name for field in fields for name in field.normalize if name not in BUILTIN_NORMALIZERS}
        return tuple(f"normalizer:{name}" for name in sorted(names))

    @property
    def forced_fields(self) -> set[str]:
        """The fields that the resource sets itself, so that the caller of an import cannot."""
        return {*self.constants, *self.constants_from, *self.computed}

    @property
    def field_names(self) -> list[str]:
        return [field.name for field in self.fields]

    @property
    def input_fields(self) -> dict[str, Field]:
        """The fields as a file has them: a field with a lookup has texts of the searched column.

        If a lookup searches several columns, the file has more fields, such as ``team_id.country``.
        """
        fields = {field.name: field for field in self.fields}
        searched = {field.name: field for lookup in self.lookups for field in lookup.by if field.name not in fields}
        return fields | searched | {lookup.field: lookup.by[0] for lookup in self.lookups}

    def get_input_field(self, name: str) -> Field:
        return self.input_fields[name] if self.lookups else self.get_field(name)

    def enforces_uniqueness(self, fields: tuple[str, ...], empty: Collection[str]) -> bool:
        """Return whether the unique set applies to a row in which the fields ``empty`` are NULL."""
        return not empty or (fields in self.nulls_equal and not any(self.get_field(name).filled for name in empty))

    @property
    def unique_sets(self) -> tuple[tuple[str, ...], ...]:
        """The sets of fields that must be unique, with the natural key first."""
        others = [fields for fields in self.unique if fields != self.key]
        return ((self.key, *others)) if self.key in self.unique else tuple(others)


def is_granted(role: Role, resource: "HasGrants", action: Literal["read", "write"]) -> bool:
    """Return whether a role has the grant."""
    granted = resource.read if action == "read" else resource.write
    return has_role(granted, role)


def find_resource_problems(resource: Resource) -> list[str]:
    """Return the problems of a resource as messages; an empty list if it is valid."""
    names, problems = resource.field_names, []
    if resource.table.is_in_protected_schema:
        problems.append(f"table {resource.table} is protected and cannot be used")
    if len(set(names)) < len(names):
        problems.append("two fields have the same name")
    known = set(names)
    for setting, fields in (
        ("key", resource.key),
        *(("unique", fields) for fields in resource.unique),
        *(("references", reference.fields) for reference in resource.references),
        ("formats", tuple(resource.formats)),
        ("constants", (*resource.constants, *resource.constants_from)),
        ("computed", tuple(resource.computed)),
        *(("conditions", (condition.field, *condition.needs)) for condition in resource.conditions),
    ):
        problems += [f'unknown field "{name}" in {setting}' for name in fields if name not in known]
    referring = {one.fields[0] for one in resource.references if len(one.fields) == 1}
    for condition in resource.conditions:
        allowed = next((field.enum for field in resource.fields if field.name == condition.field), ())
        unknown = [value for value in condition.values if allowed and value not in allowed]
        problems += [f'unknown value "{value}" for field "{condition.field}" in conditions' for value in unknown]
    problems += _find_alias_problems(resource)
    for checked in resource.fields:
        if checked.lookup and checked.name not in referring:
            problems.append(f'field "{checked.name}": a lookup requires a foreign key of this column alone')
        problems += [f'field "{checked.name}": {problem}' for problem in _find_field_problems(checked)]
    return problems


def _find_field_problems(field: Field) -> list[str]:
    problems = []
    if field.pattern is not None:
        try:
            re.compile(field.pattern)
        except re.error as error:
            problems.append(f"pattern is not a valid regular expression: {error}")
    if field.min_length is not None and field.max_length is not None and field.min_length > field.max_length:
        problems.append("min_length is greater than max_length")
    if field.create_missing and not field.lookup:
        problems.append("create_missing requires a lookup")
    if field.default is not None and field.enum and field.default not in field.enum:
        problems.append(f'default "{field.default}" is not one of {", ".join(field.enum)}')
    return problems


def normalize_column_name(name: str) -> str:
    """Return the form in which the columns of files are compared with fields: without case and punctuation."""
    return re.sub(r"[\W_]+", "", name).casefold() or name


def _find_alias_problems(resource: Resource) -> list[str]:
    """Return a message for each alias that denotes two fields."""
    owners = {normalize_column_name(name): name for name in resource.field_names}
    problems = []
    for checked in resource.fields:
        for alias in checked.aliases:
            other = owners.setdefault(normalize_column_name(alias), checked.name)
            if other != checked.name:
                problems.append(f'field "{checked.name}": the alias "{alias}" also denotes the field "{other}"')
    return problems


def quote_identifier(part: str) -> str:
    return part if re.fullmatch(r"[a-z_][a-z0-9_$]*", part) else '"' + part.replace('"', '""') + '"'


LOWER_BOUND_RULES = ("min_length", "minimum", "above")
UPPER_BOUND_RULES = ("max_length", "max_words", "maximum", "below")


def narrow_field(field: Field, rule: Mapping[str, Any]) -> Field:
    """Return the field with an additional rule. A second pattern replaces the first: a field has only one."""
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
    """Return a bound in comparable form: numbers by value, dates by text."""
    return Decimal(bound) if isinstance(bound, int) or field.type in ("integer", "number") else bound


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredField:
    """A declared field. ``rules`` has the attributes of ``Field`` to set."""

    name: str
    column: str
    rules: Mapping[str, Any] = field(default_factory=dict)
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDeclaration:
    name: str
    table: str
    fields: tuple[DeclaredField, ...] = ()
    columns: tuple[str, ...] | None = None  # additional columns; None for all columns of the table
    key: tuple[str, ...] | None = None
    unique: tuple[tuple[str, ...], ...] = ()
    references: tuple[Reference, ...] = ()
    conditions: tuple[ConditionalRequirement, ...] = ()
    formats: Mapping[str, str] = field(default_factory=dict)
    assume: bool = False
    constants: Mapping[str, str] = field(default_factory=dict)
    constants_from: Mapping[str, ConstantSource] = field(default_factory=dict)
    computed: Mapping[str, str] = field(default_factory=dict)
    skip: tuple[str, ...] = ()
    undo: bool = False
    read: tuple[Role, ...] = (Role.ADMIN,)
    write: tuple[Role, ...] = (Role.ADMIN,)

    @property
    def config_path(self) -> str:
        return f"resources.{self.name}"
