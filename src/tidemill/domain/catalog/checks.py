"""CHECK constraints: the rules of single fields that follow from them."""

from collections.abc import Callable, Iterator, Mapping
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

from tidemill.domain.catalog.column import Column, type_of
from tidemill.domain.catalog.constants import NUMBERS, TEXTS, constant
from tidemill.domain.catalog.expression import Node, Undecidable, parse
from tidemill.domain.catalog.regex import translated

Rule = tuple[str, dict[str, Any]]
"""A column, and what a field of it must keep to, by the names of Field."""

_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_LENGTHS = ("length", "char_length", "character_length")
_SAYS_MAX = 100


def rules_of(expression: str, columns: Mapping[str, Column]) -> list[Rule]:
    """The rules in an expression; nothing where only the server can judge. Every rule holds only for given values."""
    try:
        tree = parse(expression)
    except Undecidable:
        return []
    return list(_conjunction(tree, columns))


def is_decided(expression: str, columns: Mapping[str, Column]) -> bool:
    """Whether the rules in an expression are all there is to it."""
    try:
        parts = _parts(parse(expression))
    except Undecidable:
        return False
    return len(rules_of(expression, columns)) == len(parts)


def _parts(node: Node) -> list[Node]:
    return [leaf for part in node.parts for leaf in _parts(part)] if node.kind == "and" else [node]


def _conjunction(node: Node, columns: Mapping[str, Column]) -> Iterator[Rule]:
    """Each part of an AND must hold: the ones we understand are rules whatever the others are."""
    for part in _parts(node):
        try:
            yield _rule(part, columns)
        except Undecidable:
            continue


def _rule(node: Node, columns: Mapping[str, Column]) -> Rule:
    if node.kind == "or":
        return _disjunction(node, columns)
    if node.kind == "not null":
        return _column(node.parts[0], columns).name, {"nullable": False}
    if node.kind == "any" and node.value == "=":
        return _one_of(_column(node.parts[0], columns), _constants(node.parts[1]))
    if node.kind == "operator" and node.value is not None:
        return _comparison(node.value, node.parts[0], node.parts[1], columns)
    raise Undecidable


def _disjunction(node: Node, columns: Mapping[str, Column]) -> Rule:
    """``x IS NULL OR rule of x`` is the rule; ``x = 'a' OR x = 'b'`` is a list of values."""
    free = {_column(part.parts[0], columns).name for part in node.parts if part.kind == "null"}
    rules = [_rule(part, columns) for part in node.parts if part.kind != "null"]
    names = {name for name, _ in rules} | free
    if len(names) != 1 or not rules or any("nullable" in rule for _, rule in rules):
        raise Undecidable
    if len(rules) == 1:
        return rules[0]
    if any(set(rule) != {"enum"} for _, rule in rules):
        raise Undecidable
    return names.pop(), {"enum": tuple(dict.fromkeys(value for _, rule in rules for value in rule["enum"]))}


def _comparison(operator: str, left: Node, right: Node, columns: Mapping[str, Column]) -> Rule:
    if operator in ("~", "~*"):
        return _pattern(_column(left, columns), constant(right), ignore_case=operator == "~*")
    if operator not in _TURNED:
        raise Undecidable
    if _is_constant(left):
        left, right, operator = right, left, _TURNED[operator]
    bound = constant(right)
    if bound is None:
        raise Undecidable
    if left.kind == "call":
        return _length(left, operator, bound, columns)
    column = _column(left, columns)
    if operator == "=":
        return _one_of(column, [bound])
    if operator == "<>":
        return _not_empty(column, bound)
    return column.name, _bound(column, operator, bound)


def _is_constant(node: Node) -> bool:
    return node.kind == "constant" or (node.kind == "cast" and _is_constant(node.parts[0]))


def _column(node: Node, columns: Mapping[str, Column]) -> Column:
    """The column that a node is, also behind a cast that changes nothing."""
    if node.kind == "column" and (node.value or "") in columns:
        return columns[node.value or ""]
    if node.kind != "cast":
        raise Undecidable
    column = _column(node.parts[0], columns)
    whole_numbers = type_of(column) == "integer" and node.value in NUMBERS
    if not whole_numbers and not (column.compares_as_text and node.value in TEXTS[:2]):
        raise Undecidable
    return column


def _constants(node: Node) -> list[str]:
    """The values of ``ARRAY[…]``, also behind a cast of the whole."""
    if node.kind == "cast" and node.parts[0].kind == "array":
        node = node.parts[0]
    if node.kind != "array" or not node.parts:
        raise Undecidable
    values = [constant(part) for part in node.parts]
    if None in values:
        raise Undecidable  # equal to NULL is unknown, and what is unknown passes a CHECK
    return [value for value in values if value is not None]


def _one_of(column: Column, values: list[str]) -> Rule:
    if column.compares_as_text:
        return column.name, {"enum": tuple(dict.fromkeys(values))}
    numbers = sorted(_number(value) for value in values)
    if type_of(column) not in ("integer", "number"):
        raise Undecidable
    return column.name, {"minimum": _plain(numbers[0]), "maximum": _plain(numbers[-1])}


def _not_empty(column: Column, value: str) -> Rule:
    if value or not column.compares_as_text or column.labels:
        raise Undecidable
    return column.name, {"min_length": 1}


def _pattern(column: Column, regex: str | None, *, ignore_case: bool) -> Rule:
    if regex is None or not column.compares_as_text:
        raise Undecidable
    shown = regex if len(regex) <= _SAYS_MAX else regex[:_SAYS_MAX] + "…"
    return column.name, {"pattern": translated(regex, ignore_case=ignore_case), "pattern_says": f"a match of {shown}"}


def _length(call: Node, operator: str, bound: str, columns: Mapping[str, Column]) -> Rule:
    if call.value not in _LENGTHS or len(call.parts) != 1:
        raise Undecidable
    column = _column(call.parts[0], columns)
    if not column.compares_as_text or column.labels:
        raise Undecidable
    low, high = _whole(operator, _number(bound))
    limits = {"min_length": low if low is None else max(low, 0), "max_length": high if high is None else max(high, 0)}
    return column.name, {name: limit for name, limit in limits.items() if limit is not None}


def _bound(column: Column, operator: str, bound: str) -> dict[str, Any]:
    type_ = type_of(column)
    if type_ == "number":
        name = {">": "above", ">=": "minimum", "<": "below", "<=": "maximum"}[operator]
        return {name: _plain(_number(bound))}
    if type_ == "integer":
        return _named(*_whole(operator, _number(bound)), str)
    if type_ == "date":
        step = timedelta(days=1) if operator in ("<", ">") else timedelta()
        day = _date(bound)
        return _named(day + step if operator in (">", ">=") else None, day - step if "<" in operator else None, str)
    raise Undecidable  # texts are in the order of a collation; times have many spellings


def _whole(operator: str, bound: Decimal) -> tuple[int | None, int | None]:
    """The lowest and the highest whole number that a comparison allows."""
    floor, ceiling = int(bound.to_integral_value(ROUND_FLOOR)), int(bound.to_integral_value(ROUND_CEILING))
    return {
        ">": (floor + 1, None),
        ">=": (ceiling, None),
        "<": (None, ceiling - 1),
        "<=": (None, floor),
        "=": (ceiling, floor),
    }.get(operator, (None, None))


def _named(low: Any, high: Any, text: Callable[[Any], str]) -> dict[str, Any]:
    return {name: text(value) for name, value in (("minimum", low), ("maximum", high)) if value is not None}


def _number(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise Undecidable from None
    if not value.is_finite():
        raise Undecidable
    return value


def _plain(value: Decimal) -> str:
    return format(value, "f")


def _date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Undecidable from None
