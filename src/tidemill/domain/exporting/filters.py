"""Which rows are meant: conditions on fields, as people write them, and typed as the fields are."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemill.domain.errors import InvalidInput
from tidemill.domain.exporting.near import like
from tidemill.domain.resource import Field, Resource, Type
from tidemill.domain.values.arrays import read_array
from tidemill.domain.values.problem import is_storable, shown
from tidemill.domain.values.types import READERS

OPERATORS: Final = ("eq", "ne", "lt", "lte", "gt", "gte", "in", "like", "is_null", "between")
CONDITIONS_MAX: Final = 100
VALUES_MAX: Final = 10_000
_ORDERED: Final = ("lt", "lte", "gt", "gte", "between")
_LISTS: Final = ("in", "between")
_QUERY = re.compile(r"filter\[([^\[\]]*)\](?:\[([^\[\]]*)\])?")
_WHERE = re.compile(r"([^\[\]=]+)(?:\[([^\[\]=]*)\])?=(.*)", re.DOTALL)
_LAST_IS_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_TEXTS = ("text", "character varying", "character", "bpchar", "citext", "name")
Wrong = tuple[tuple[str, ...], str]
"""Where something is wrong in a request, and what."""
_YES, _NO = ("", "true", "t", "yes", "1"), ("false", "f", "no", "0")


@dataclass(frozen=True, slots=True)
class Condition:
    """As it was said: nobody has looked yet whether there is such a field."""

    field: str
    op: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition that fits its field: values are in the text form that PostgreSQL reads."""

    field: str
    column: str
    type: Type
    sql_type: str
    op: str
    values: tuple[str, ...]


def from_query(pairs: Iterable[tuple[str, str]]) -> list[Condition]:
    """From ``filter[role][in]=admin,editor``; ``filter[role]=admin`` is ``eq``. Other names are not looked at."""
    found = []
    for name, text in pairs:
        if name.startswith("filter"):
            match = _QUERY.fullmatch(name)
            if match is None:
                raise InvalidInput(f"{shown(name)!r}: a filter is written filter[FIELD]=… or filter[FIELD][OPERATOR]=…")
            found.append(_condition(match[1], match[2], text))
    return found


def parse_condition(text: str) -> Condition:
    """From ``role[in]=admin,editor`` or ``role=admin``; also as a query says it, ``filter[role][in]=admin,editor``."""
    name, is_said, value = text.partition("=")
    as_query = _QUERY.fullmatch(name) if is_said else None
    if as_query is not None and (as_query[2] is not None or as_query[1] not in OPERATORS):  # or a field of that name
        return _condition(as_query[1], as_query[2], value)
    match = _WHERE.fullmatch(text)
    if match is None:
        raise InvalidInput(f"{shown(text)!r}: a condition is written FIELD=VALUE or FIELD[OPERATOR]=VALUE")
    return _condition(match[1].strip(), match[2], match[3])


def from_object(filters: Mapping[str, Any]) -> list[Condition]:
    """From ``{"role": {"in": ["admin", "editor"]}, "age": {"gte": 18}}``; ``{"role": "admin"}`` is ``eq``."""
    found = []
    for field, said in filters.items():
        if said == {}:
            raise InvalidInput(f"filter {shown(field)!r}: it says nothing; write {{operator: value}}, or a value")
        for op, value in (said if isinstance(said, Mapping) else {"eq": said}).items():
            values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
            if any(isinstance(one, Mapping | list) for one in values):
                raise InvalidInput(f"filter {shown(field)!r}: a value is a text, a number or true or false")
            found.append(Condition(field, str(op), tuple(_plain(one, field, op) for one in values)))
    return found


def as_object(conditions: Iterable[Condition]) -> dict[str, dict[str, list[str]]]:
    """To be kept, and to be shown."""
    found: dict[str, dict[str, list[str]]] = {}
    for one in conditions:
        found.setdefault(one.field, {}).setdefault(one.op, []).extend(one.values)
    return found


def typed(conditions: Sequence[Condition], resource: Resource) -> tuple[list[Filter], list[Wrong]]:
    """The conditions, each as its field wants it; and a sentence for each that cannot be."""
    if len(conditions) > CONDITIONS_MAX:
        return [], [(("filters",), f"{len(conditions)} filters are too many: there may be {CONDITIONS_MAX}")]
    filters: list[Filter] = []
    problems: list[Wrong] = []
    for condition in conditions:
        try:
            filters.append(_typed(condition, resource))
        except InvalidInput as error:
            problems.append((("filters", condition.field), str(error)))
    return filters, problems


def _condition(field: str, op: str | None, text: str) -> Condition:
    op = "eq" if op is None else op
    return Condition(field, op, _list(text) if op in _LISTS else (text,))


def _list(text: str) -> tuple[str, ...]:
    """Values between commas; one that has a comma itself stands in quotes."""
    if not text:
        return ()
    try:
        (values,) = csv.reader([text], strict=True)
    except (csv.Error, ValueError):
        raise InvalidInput(f"{shown(text)!r} is not a list of values between commas") from None
    return tuple(values)


def _plain(value: Any, field: str, op: Any) -> str:
    if value is None:
        raise InvalidInput(f'filter {shown(field)!r}: write {{"is_null": true}} for what is not there, not {op} null')
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _typed(condition: Condition, resource: Resource) -> Filter:
    named, op = shown(condition.field), condition.op
    if condition.field not in resource.names:
        raise InvalidInput(
            f"filter {named!r}: {resource.name} has no such field{like(condition.field, resource.names)}"
        )
    if op not in OPERATORS:
        near = like(op, OPERATORS) or f"; there are {', '.join(OPERATORS)}"
        raise InvalidInput(f"filter {named!r}: there is no operator {shown(op)!r}{near}")
    field = resource.field(condition.field)
    if op not in operators_of(field):
        raise InvalidInput(f"filter {named!r}: {op} is not for {field.sql_type}")
    _check_count(condition)
    values = tuple(_value(field, op, text) for text in condition.values)
    return Filter(field.name, field.column, field.type, field.sql_type, op, values)


def operators_of(field: Field) -> tuple[str, ...]:
    match field.type:
        case "json":
            return ("is_null",)
        case "boolean" | "array" | "bytes":
            return ("eq", "ne", "in", "is_null")
        case "text" | "other":
            return OPERATORS
        case _:
            return tuple(op for op in OPERATORS if op != "like")


def _is_plain_text(field: Field) -> bool:
    """Not an enum of the server's, whatever a declaration allows: the table may have other values."""
    return field.sql_type.partition("(")[0].rpartition(".")[2] in _TEXTS


def _check_count(condition: Condition) -> None:
    count, op = len(condition.values), condition.op
    if op == "between" and count != 2:  # noqa: PLR2004
        raise InvalidInput(f"filter {shown(condition.field)!r}: between wants two values, not {count}")
    if op == "in" and not 0 < count <= VALUES_MAX:
        raise InvalidInput(f"filter {shown(condition.field)!r}: in wants 1 to {VALUES_MAX} values, not {count}")
    if op not in _LISTS and count != 1:
        raise InvalidInput(f"filter {shown(condition.field)!r}: {op} wants one value, not {count}")


def _value(field: Field, op: str, text: str) -> str:
    if op == "is_null":
        if text.lower() not in (*_YES, *_NO):
            raise InvalidInput(f"filter {field.name!r}: is_null is true or false, not {shown(text)!r}")
        return "true" if text.lower() in _YES else "false"
    if not is_storable(text):
        raise InvalidInput(f"filter {field.name!r}: a character that PostgreSQL cannot store")
    if op == "like":
        if _LAST_IS_ESCAPE.search(text):
            raise InvalidInput(f"filter {field.name!r}: a pattern does not end with a single backslash")
        return text
    return _read(field, text)


def _read(field: Field, text: str) -> str:
    """As the field's own values are read; its rules are not asked: nobody is about to store it."""
    if field.type not in ("text", "other"):
        text = text.strip()
    (found,), wrong = (read_array if field.type == "array" else READERS[field.type])(field, [text])
    told = "…" if field.sensitive else repr(shown(text))
    if wrong:
        raise InvalidInput(f"filter {field.name!r}: {told} is {wrong[0]}")
    if field.enum and not _is_plain_text(field) and found not in field.enum:  # or the server would not understand it
        raise InvalidInput(f"filter {field.name!r}: {told} is not one of {', '.join(field.enum)}")
    return found or ""
