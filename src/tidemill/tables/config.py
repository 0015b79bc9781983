"""The section ``[resources]`` of ``tidemill.toml``: the tables of imports and exports, and their rules."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    StrictBool,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from tidemill.config_sections import ConfigTable, Names, NonEmpty, Roles, Text, Unique, check_choice, parse_section
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import ColumnType
from tidemill.tables.introspection.table_introspection import parse_table_name_variants
from tidemill.tables.resource import (
    BUILTIN_NORMALIZERS,
    ConditionalRequirement,
    ConstantSource,
    DeclaredField,
    Reference,
    ResourceDeclaration,
    TableName,
)
from tidemill.tables.row_rules import (
    COMPUTED_MAX,
    CONSTANTS_MAX,
    SKIP_RULES_MAX,
    check_constant_text,
    parse_computed_rule,
    parse_skip_rule,
)
from tidemill.tables.values.value_formats import get_value_format

# Possessive quantifiers prevent backtracking.
NAMED_PATTERNS = {
    "email": (r"[\w.!#$%&'*+/=?^`{|}~-]++@(?:[\w-]++\.)++[\w-]{2,}+", "an e-mail address"),
    "slug": (r"[a-z0-9]++(?:-[a-z0-9]++)*+", "a slug such as my-first-article"),
    "url": (r"https?://[^\s/?#]++(?:[/?#]\S*+)?+", "a URL that starts with http:// or https://"),
}
_DECLARABLE_TYPES = [name for name in get_args(ColumnType) if name not in ("array", "other")]
_EXCLUSIVE_RULE_PAIRS = [("required", "default"), ("pattern", "format"), ("minimum", "above"), ("maximum", "below")]
FIELD_ALIASES_MAX = 100
_SAMPLE_DATETIME = datetime(2026, 11, 15, 13, 45, 7)  # noqa: DTZ001  only formatted and parsed


def _format_scalar(value: Any) -> str:
    """Return the text form of a single value."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int() | float():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            raise ValueError("Input should be a single value: a string, a number, a boolean or a date")


def _check_normalizer(name: str, info: ValidationInfo) -> str:
    return check_choice(name, (info.context or {}).get("normalizers", BUILTIN_NORMALIZERS))


def _check_pattern(pattern: str) -> str:
    try:
        re.compile(f"(?:{pattern})")  # it is also used inside a larger pattern
    except re.error as error:
        raise ValueError(f"Invalid regular expression: {error}") from None
    return pattern


def _check_date_format(text: str) -> str:
    try:
        datetime.strptime(_SAMPLE_DATETIME.strftime(text), text)  # noqa: DTZ007  only the format is tested
    except ValueError:
        raise ValueError(f'Invalid date format "{text}". Use a format such as %d.%m.%Y.') from None
    return text


def _parse_column_selection(value: Any, validate: ValidatorFunctionWrapHandler) -> tuple[str, ...] | None:
    if value in ("all", "declared"):
        return None if value == "all" else ()
    if isinstance(value, str):
        raise ValueError('Input should be "all", "declared" or a list of columns')  # noqa: TRY004  pydantic collects it
    return validate(value)  # type: ignore[no-any-return]


def _split_table_name(text: str, max_parts: int = 2) -> list[str]:
    try:
        return [part[0] for part in parse_table_name_variants(text, max_parts)]
    except InvalidInput as error:
        raise ValueError(str(error)) from None


def _check_table_name(text: str) -> str:
    """Check the syntax. A name without a schema is resolved along the search path later."""
    _split_table_name(text)
    return text


def _make_table_name_unless_protected(schema: str, name: str) -> TableName:
    """Reject protected schemas: a reference would reveal whether their tables contain a value."""
    table = TableName(schema, name)
    if table.is_in_protected_schema:
        raise ValueError(f'Schema "{schema}" is protected and cannot be referenced')
    return table


def _parse_referenced_table(value: Any) -> TableName:
    parts = _split_table_name(value) if isinstance(value, str) else []
    if len(parts) != 2:  # noqa: PLR2004  schema, table
        raise ValueError("Input should be a table with its schema, such as public.users")
    return _make_table_name_unless_protected(*parts)


def _parse_referenced_column(value: Any) -> tuple[TableName, str]:
    parts = _split_table_name(value, max_parts=3) if isinstance(value, str) else []
    if len(parts) != 3:  # noqa: PLR2004  schema, table, column
        raise ValueError("Input should be a column with its schema and table, such as public.users.id")
    return _make_table_name_unless_protected(*parts[:2]), parts[2]


def _check_value_format(name: str) -> str:
    try:
        get_value_format(name)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
    return name


def _check_rule(parse: Callable[[str], object]) -> Callable[[str], str]:
    def check(text: str) -> str:
        try:
            parse(text)
        except InvalidInput as error:
            raise ValueError(str(error)) from None
        return text

    return check


@dataclass(frozen=True, slots=True)
class _ConstantFrom:
    """A constant whose value is known when an import is submitted."""

    source: ConstantSource


def _parse_constant(value: Any) -> str | _ConstantFrom:
    if not isinstance(value, Mapping):
        return _check_constant(_format_scalar(value))
    if value.keys() != {"from"}:
        raise ValueError(f'Input should be a value or a table with the key "from", not {", ".join(value) or "empty"}')
    return _ConstantFrom(check_choice(value["from"], get_args(ConstantSource)))  # type: ignore[arg-type]


_check_constant = _check_rule(check_constant_text)
Constants = Annotated[dict[str, Annotated[Any, PlainValidator(_parse_constant)]], Field(max_length=CONSTANTS_MAX)]
ComputedRule = Annotated[str, AfterValidator(_check_rule(parse_computed_rule))]
ComputedRules = Annotated[dict[str, ComputedRule], Field(max_length=COMPUTED_MAX)]
SkipRules = Annotated[tuple[Annotated[str, AfterValidator(_check_rule(parse_skip_rule))], ...], Unique]
ValueFormatName = Annotated[str, AfterValidator(_check_value_format)]
Scalar = Annotated[str, BeforeValidator(_format_scalar)]
Scalars = Annotated[tuple[Scalar, ...], NonEmpty, Unique]
Count = Annotated[int, Field(strict=True, ge=0)]


class FieldTable(ConfigTable):
    column: Text | None = None
    type: Annotated[str, AfterValidator(lambda name: check_choice(name, _DECLARABLE_TYPES))] | None = None
    required: StrictBool = False
    default: Scalar | None = None
    enum: Scalars = ()
    pattern: Annotated[Text, AfterValidator(_check_pattern)] | None = None
    pattern_says: Text | None = None
    format: Annotated[str, AfterValidator(lambda name: check_choice(name, NAMED_PATTERNS))] | None = None
    min_length: Count | None = None
    max_length: Count | None = None
    max_words: Count | None = None
    minimum: Scalar | None = None
    maximum: Scalar | None = None
    above: Scalar | None = None
    below: Scalar | None = None
    normalize: Annotated[tuple[Annotated[str, AfterValidator(_check_normalizer)], ...], NonEmpty, Unique] = ()
    date_formats: Annotated[tuple[Annotated[Text, AfterValidator(_check_date_format)], ...], NonEmpty, Unique] = ()
    sensitive: StrictBool = False
    aliases: Annotated[Names, Field(max_length=FIELD_ALIASES_MAX)] = ()
    unique: StrictBool = False
    lookup: Annotated[Names, BeforeValidator(lambda value: [value] if isinstance(value, str) else value)] = ()
    create_missing: StrictBool = False
    references: Annotated[tuple[TableName, str], PlainValidator(_parse_referenced_column)] | None = None

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        for one, other in _EXCLUSIVE_RULE_PAIRS:
            if given.get(one, False) is not False and other in given:
                yield other, f'Conflicts with "{one}"; set only one of them'
        if "pattern_says" in given and "pattern" not in given:
            yield "pattern_says", 'Requires "pattern"'

    def build_field(self, name: str) -> DeclaredField:
        rules = self.get_explicit_values(exclude=("column", "unique", "references", "format", "date_formats"))
        if self.format is not None:
            rules["pattern"], rules["pattern_says"] = NAMED_PATTERNS[self.format]
        if self.date_formats:
            rules["formats"] = self.date_formats
        return DeclaredField(name=name, column=self.column or name, unique=self.unique, rules=rules)


class ReferenceTable(ConfigTable):
    fields: Names
    table: Annotated[TableName, PlainValidator(_parse_referenced_table)]
    columns: Names

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        fields, columns = given.get("fields"), given.get("columns")
        if isinstance(fields, list | tuple) and isinstance(columns, list | tuple) and len(fields) != len(columns):
            yield "columns", f"{len(columns)} columns for {len(fields)} fields; list one column for each field"


class ConditionTable(ConfigTable):
    field: Text
    values: Scalars
    needs: Names


class ResourceTable(ConfigTable):
    table: Annotated[Text, AfterValidator(_check_table_name)]
    key: Names | None = None
    unique: Annotated[tuple[Names, ...], NonEmpty, Unique] = ()
    columns: Annotated[Names | None, WrapValidator(_parse_column_selection)] = None
    read: Roles = ()
    write: Roles = ()
    fields: dict[str, FieldTable] = Field({})
    references: tuple[ReferenceTable, ...] = ()
    conditions: tuple[ConditionTable, ...] = ()
    formats: dict[str, ValueFormatName] = Field({})
    assume: StrictBool = False
    constants: Constants = Field({})
    computed: ComputedRules = Field({})
    skip: Annotated[SkipRules, Field(max_length=SKIP_RULES_MAX)] = ()
    undo: StrictBool = False

    @classmethod
    def find_conflicts(cls, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        constants, computed = given.get("constants"), given.get("computed")
        if isinstance(constants, Mapping) and isinstance(computed, Mapping):
            for name in constants.keys() & computed.keys():
                yield "computed", f'Field "{name}" is a constant, too; set only one of them'

    def build_resource(self, name: str) -> ResourceDeclaration:
        of_fields = [
            Reference((field,), rules.references[0], (rules.references[1],))
            for field, rules in self.fields.items()
            if rules.references is not None
        ]
        return ResourceDeclaration(
            name=name,
            fields=tuple(rules.build_field(field) for field, rules in self.fields.items()),
            references=(*of_fields, *(Reference(one.fields, one.table, one.columns) for one in self.references)),
            conditions=tuple(ConditionalRequirement(one.field, one.values, one.needs) for one in self.conditions),
            constants={name: one for name, one in self.constants.items() if isinstance(one, str)},
            constants_from={name: one.source for name, one in self.constants.items() if isinstance(one, _ConstantFrom)},
            **self.get_explicit_values(exclude=("fields", "references", "conditions", "constants")),
        )


def parse_resource_declarations(
    document: Mapping[str, Any], normalizers: Collection[str] = BUILTIN_NORMALIZERS
) -> dict[str, ResourceDeclaration]:
    """Return the resources in a document by name; InvalidSettings lists every error."""
    return parse_section(
        document,
        "resources",
        ResourceTable,
        lambda name, table: table.build_resource(name),
        context={"normalizers": normalizers},
    )
