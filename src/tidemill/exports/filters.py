"""Which rows are meant: conditions on fields, as people write them, and typed as the fields are."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.core.column_type import ColumnType
from tidemill.core.errors import InvalidInput
from tidemill.core.suggest import suggest_similar_quoted
from tidemill.tables.resource import Field, Resource
from tidemill.tables.values.column_texts import is_storable_text, truncate_for_error
from tidemill.tables.values.type_readers import TYPE_READERS, read_array

FILTER_OPERATORS: Final = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "like", "is_null", "between")
FILTERS_MAX: Final = 100
FILTER_VALUES_MAX: Final = 10_000
_ORDERED_OPERATORS: Final = ("lt", "lte", "gt", "gte", "between")
_LIST_OPERATORS: Final = ("in", "between")
_FILTER_PARAMETER_PATTERN = re.compile(r"filter\[([^\[\]]*)\](?:\[([^\[\]]*)\])?")
_CONDITION_PATTERN = re.compile(r"([^\[\]=]+)(?:\[([^\[\]=]*)\])?=(.*)", re.DOTALL)
_TRAILING_ESCAPE_PATTERN = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_TEXT_SQL_TYPES = ("text", "character varying", "character", "bpchar", "citext", "name")
RequestProblem = tuple[tuple[str, ...], str]
"""Where something is wrong in a request, and what."""
_TRUE_VALUES, _FALSE_VALUES = ("", "true", "t", "yes", "1"), ("false", "f", "no", "0")


@dataclass(frozen=True, slots=True)
class FilterCondition:
    """As it was said: nobody has looked yet whether there is such a field."""

    field: str
    op: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TypedFilter:
    """A condition that fits its field: values are in the text form that PostgreSQL reads."""

    field: str
    column: str
    type: ColumnType
    sql_type: str
    op: str
    values: tuple[str, ...]


def parse_query_filters(pairs: Iterable[tuple[str, str]]) -> list[FilterCondition]:
    """From ``filter[role][in]=admin,editor``; ``filter[role]=admin`` is ``eq``. Other names are not looked at."""
    found = []
    for name, text in pairs:
        if name.startswith("filter"):
            match = _FILTER_PARAMETER_PATTERN.fullmatch(name)
            if match is None:
                raise InvalidInput(
                    f"{truncate_for_error(name)!r}: a filter is written filter[FIELD]=… or filter[FIELD][OPERATOR]=…"
                )
            found.append(_make_condition(match[1], match[2], text))
    return found


def parse_condition(text: str) -> FilterCondition:
    """From ``role[in]=admin,editor`` or ``role=admin``; also as a query says it, ``filter[role][in]=admin,editor``."""
    name, is_said, value = text.partition("=")
    as_query = _FILTER_PARAMETER_PATTERN.fullmatch(name) if is_said else None
    if as_query is not None and (
        as_query[2] is not None or as_query[1] not in FILTER_OPERATORS
    ):  # or a field of that name
        return _make_condition(as_query[1], as_query[2], value)
    match = _CONDITION_PATTERN.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{truncate_for_error(text)!r}: a condition is written FIELD=VALUE or FIELD[OPERATOR]=VALUE")
    return _make_condition(match[1].strip(), match[2], match[3])


def parse_filter_object(filters: Mapping[str, Any]) -> list[FilterCondition]:
    """From ``{"role": {"in": ["admin", "editor"]}, "age": {"gte": 18}}``; ``{"role": "admin"}`` is ``eq``."""
    found = []
    for field, said in filters.items():
        if said == {}:
            raise InvalidInput(
                f"filter {truncate_for_error(field)!r}: it says nothing; write {{operator: value}}, or a value"
            )
        for op, value in (said if isinstance(said, Mapping) else {"eq": said}).items():
            values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            if any(isinstance(one, Mapping | list) for one in values):
                raise InvalidInput(
                    f"filter {truncate_for_error(field)!r}: a value is a text, a number or true or false"
                )
            found.append(FilterCondition(field, str(op), tuple(_format_value(one, field, op) for one in values)))
    return found


def build_filter_object(conditions: Iterable[FilterCondition]) -> dict[str, dict[str, list[str]]]:
    """To be kept, and to be shown."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in conditions:
        found.setdefault(one.field, {}).setdefault(one.op, []).extend(one.values)
    return found


def resolve_filters(
    conditions: Sequence[FilterCondition], resource: Resource
) -> tuple[list[TypedFilter], list[RequestProblem]]:
    """The conditions, each as its field wants it; and a sentence for each that cannot be."""
    if len(conditions) > FILTERS_MAX:
        return [], [(("filters",), f"{len(conditions)} filters are too many: there may be {FILTERS_MAX}")]
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
    """Values between commas; one that has a comma itself stands in quotes."""
    if not text:
        return ()
    try:
        (values,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError):
        raise InvalidInput(f"{truncate_for_error(text)!r} is not a list of values between commas") from None
    return tuple(values)


def _format_value(value: Any, field: str, op: Any) -> str:
    if value is None:
        raise InvalidInput(
            f'filter {truncate_for_error(field)!r}: write {{"is_null": true}} for what is not there, not {op} null'
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _resolve_filter(condition: FilterCondition, resource: Resource) -> TypedFilter:
    named, op = truncate_for_error(condition.field), condition.op
    if condition.field not in resource.field_names:
        similar = suggest_similar_quoted(condition.field, resource.field_names)
        raise InvalidInput(f"filter {named!r}: {resource.name} has no such field{similar}")
    if op not in FILTER_OPERATORS:
        near = suggest_similar_quoted(op, FILTER_OPERATORS) or f"; there are {', '.join(FILTER_OPERATORS)}"
        raise InvalidInput(f"filter {named!r}: there is no operator {truncate_for_error(op)!r}{near}")
    field = resource.get_field(condition.field)
    if op not in list_operators(field):
        raise InvalidInput(f"filter {named!r}: {op} is not for {field.sql_type}")
    _check_value_count(condition)
    values = tuple(_parse_operand(field, op, text) for text in condition.values)
    return TypedFilter(field.name, field.column, field.type, field.sql_type, op, values)


def list_operators(field: Field) -> tuple[str, ...]:
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
    """Not an enum of the server's, whatever a declaration allows: the table may have other values."""
    return field.sql_type.partition("(")[0].rpartition(".")[2] in _TEXT_SQL_TYPES


def _check_value_count(condition: FilterCondition) -> None:
    count, op = len(condition.values), condition.op
    if op == "between" and count != 2:  # noqa: PLR2004
        raise InvalidInput(f"filter {truncate_for_error(condition.field)!r}: between wants two values, not {count}")
    if op == "in" and not 0 < count <= FILTER_VALUES_MAX:
        raise InvalidInput(
            f"filter {truncate_for_error(condition.field)!r}: in wants 1 to {FILTER_VALUES_MAX} values, not {count}"
        )
    if op not in _LIST_OPERATORS and count != 1:
        raise InvalidInput(f"filter {truncate_for_error(condition.field)!r}: {op} wants one value, not {count}")


def _parse_operand(field: Field, op: str, text: str) -> str:
    if op == "is_null":
        if text.lower() not in (*_TRUE_VALUES, *_FALSE_VALUES):
            raise InvalidInput(f"filter {field.name!r}: is_null is true or false, not {truncate_for_error(text)!r}")
        return "true" if text.lower() in _TRUE_VALUES else "false"
    if not is_storable_text(text):
        raise InvalidInput(f"filter {field.name!r}: a character that PostgreSQL cannot store")
    if op == "like":
        if _TRAILING_ESCAPE_PATTERN.search(text):
            raise InvalidInput(f"filter {field.name!r}: a pattern does not end with a single backslash")
        return text
    return _parse_field_value(field, text)


def _parse_field_value(field: Field, text: str) -> str:
    """As the field's own values are read; its rules are not asked: nobody is about to store it."""
    if field.type not in ("text", "other"):
        text = text.strip()
    (found,), wrong = (read_array if field.type == "array" else TYPE_READERS[field.type])(field, [text])
    told = "…" if field.sensitive else repr(truncate_for_error(text))
    if wrong:
        raise InvalidInput(f"filter {field.name!r}: {told} is {wrong[0]}")
    if field.enum and not _is_text_column(field) and found not in field.enum:  # or the server would not understand it
        raise InvalidInput(f"filter {field.name!r}: {told} is not one of {', '.join(field.enum)}")
    return found or ""
