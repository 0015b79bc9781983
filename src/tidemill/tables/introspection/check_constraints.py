"""Translates CHECK constraints to rules of single fields."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any

from tidemill.tables.introspection.catalog_columns import CatalogColumn, get_column_type
from tidemill.tables.introspection.sql_expressions import (
    NUMERIC_SQL_TYPES,
    TEXT_SQL_TYPES,
    ExpressionNode,
    UnsupportedExpression,
    get_constant_text,
    parse_expression,
)

CHECKED_VALUE_MAX_CHARS = 300  # longer values with several repeats take too long to match
MAX_OPEN_ENDED_REPEATS = 3
_ANY_TEXT_PATTERN = r"[^\n]*"
_WHITESPACE_CHARS = r" \t\r\f\v"  # line ends are handled separately
_POSIX_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "lower": "a-z",
    "upper": "A-Z",
    "space": _WHITESPACE_CHARS,
}
_SHORTHAND_CLASSES = {"d": _POSIX_CLASSES["digit"], "w": "a-zA-Z0-9_", "s": _WHITESPACE_CHARS}
_REGEX_TOKEN = re.compile(
    r"""(?P<anchor>[\^$])
      | \\(?P<shorthand>[dwsS])
      | \\(?P<escaped>[^a-zA-Z0-9\s])
      | (?P<dot>\.)
      | \[(?P<set>\^?(?:\\.|\[:[a-z]+:\]|[^\[\]\\])+)\]
      | (?P<opening>\((?:\?:)?(?![?*]))
      | (?P<closing>\))
      | (?P<either>\|)
      | (?P<repeat>(?:[*+?]|\{[0-9]{1,3}(?:,[0-9]{0,3})?\})\??)
      | (?P<literal>[^\\\[\](){}*+?|.^$])""",
    re.VERBOSE | re.DOTALL,
)
_SET_MEMBER = re.compile(
    r"""(?P<range>[^\\\[\]-]-[^\\\[\]-])
      | \\(?P<shorthand>[dws])
      | \\(?P<escaped>[^a-zA-Z0-9\s])
      | \[:(?P<name>[a-z]+):\]
      | (?P<plain>[^\\\[\]])""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(slots=True)
class _PatternTraits:
    """Properties of a pattern that are collected during its translation."""

    matches_non_ascii: bool = False
    matches_line_ends: bool = False
    open_ended_repeats: int = 0


@dataclass(frozen=True, slots=True)
class _RegexToken:
    kind: str
    text: str
    python: str


def translate_regex(pattern: str, *, ignore_case: bool = False) -> str:
    """Return a pattern for ``re.fullmatch`` that matches every value that PostgreSQL accepts.

    Raises:
        UnsupportedExpression: The translation may not be exact.
    """
    notes = _PatternTraits(matches_non_ascii=ignore_case)
    tokens = _tokenize_and_translate(pattern, notes)
    starts, ends = _is_anchor(tokens[:1], "^"), _is_anchor(tokens[-1:], "$")
    inner = tokens[starts : len(tokens) - ends]
    if any(token.kind == "anchor" for token in inner) or ((starts or ends) and _has_top_level_alternation(inner)):
        raise UnsupportedExpression(pattern)  # ^a|b$ is two patterns, each with one anchor
    notes.open_ended_repeats -= _count_safe_nested_repeats(inner)
    body = "".join(token.python for token in inner)
    body = ("" if starts else _ANY_TEXT_PATTERN) + f"(?:{body})" + ("" if ends else _ANY_TEXT_PATTERN)
    notes.matches_line_ends |= not (starts and ends)
    notes.open_ended_repeats += (not starts) + (not ends)
    if notes.open_ended_repeats > MAX_OPEN_ENDED_REPEATS:
        raise UnsupportedExpression(pattern)
    whole = "|".join([*_list_server_checked_alternatives(notes), f"(?i:{body})" if ignore_case else body])
    try:
        re.compile(whole)
    except re.error:
        raise UnsupportedExpression(pattern) from None
    return whole


def _list_server_checked_alternatives(notes: _PatternTraits) -> list[str]:
    left = {
        rf"[^\n]{{{CHECKED_VALUE_MAX_CHARS + 1},}}": notes.open_ended_repeats > 1,
        r"[^\n]*[^\x00-\x7f][^\n]*": notes.matches_non_ascii,
        r"(?s:.*\n.*)": notes.matches_line_ends,
    }
    return [alternative for alternative, is_needed in left.items() if is_needed]


def _is_anchor(tokens: list[_RegexToken], text: str) -> bool:
    return [(token.kind, token.text) for token in tokens] == [("anchor", text)]


def _tokenize_and_translate(pattern: str, notes: _PatternTraits) -> list[_RegexToken]:
    tokens, at = [], 0
    while at < len(pattern):
        found = _REGEX_TOKEN.match(pattern, at)
        if found is None or found.lastgroup is None:
            raise UnsupportedExpression(pattern)
        kind, text = found.lastgroup, found[found.lastgroup]
        tokens.append(_RegexToken(kind, text, _translate_pattern_token(kind, text, notes)))
        at = found.end()
    return tokens


def _translate_pattern_token(kind: str, text: str, notes: _PatternTraits) -> str:
    match kind:
        case "dot":
            notes.matches_line_ends = True
            return r"[^\n]"
        case "set":
            return _translate_set(text, notes)
        case "shorthand" if text == "S":
            notes.matches_non_ascii = True
            return rf"[^\n{_WHITESPACE_CHARS}]"
        case "shorthand":
            notes.matches_non_ascii = True
            notes.matches_line_ends |= text == "s"
            return f"[{_SHORTHAND_CLASSES[text]}]"
        case "opening":
            return "(?:"
        case "repeat":
            notes.open_ended_repeats += _is_open_ended_repeat(text)
            return text
        case "escaped" | "literal":
            notes.matches_line_ends |= text == "\n"
            return re.escape(text)
        case _:
            return text


def _is_open_ended_repeat(repeat: str) -> bool:
    return repeat[0] in "*+" or ",}" in repeat


def _translate_set(text: str, notes: _PatternTraits) -> str:
    negated = text.startswith("^")
    members, inside, at = [], text.removeprefix("^"), 0
    has_space = False
    while at < len(inside):
        found = _SET_MEMBER.match(inside, at)
        if found is None or (found["plain"] == "-" and 0 < at < len(inside) - 1):
            raise UnsupportedExpression(text)
        classes = _SHORTHAND_CLASSES.get(found["shorthand"] or "") or _POSIX_CLASSES.get(found["name"] or "")
        if found["name"] and classes is None:
            raise UnsupportedExpression(text)
        has_space |= classes == _WHITESPACE_CHARS
        notes.matches_non_ascii |= classes is not None
        first, _, last = (found["range"] or "").partition("-")
        span = f"{re.escape(first)}-{re.escape(last)}"
        members.append(classes or (span if found["range"] else re.escape(found["escaped"] or found["plain"])))
        at = found.end()
    # The pattern never matches line ends; PostgreSQL decides on values that contain them.
    notes.matches_line_ends |= has_space != negated
    return rf"[^\n{''.join(members)}]" if negated else f"[{''.join(members)}]"


def _has_top_level_alternation(tokens: list[_RegexToken]) -> bool:
    """Return whether there is a | outside all groups."""
    depth = 0
    for token in tokens:
        depth += (token.kind == "opening") - (token.kind == "closing")
        if token.kind == "either" and depth == 0:
            return True
    return False


def _count_safe_nested_repeats(tokens: list[_RegexToken]) -> int:
    """Count the repeated groups that contain repeats but have a separator, such as (-[a-z]+)*.

    Raises:
        UnsupportedExpression: For groups that can backtrack exponentially, such as (a+)+ and (a|ab)*.
    """
    openings: list[int] = []
    separated = 0
    for at, token in enumerate(tokens):
        if token.kind == "opening":
            openings.append(at)
        elif token.kind == "closing":
            if not openings:
                raise UnsupportedExpression
            group = tokens[openings.pop() + 1 : at]
            following = tokens[at + 1 : at + 2]
            if following and following[0].kind == "repeat" and following[0].text[0] != "?":
                separated += _has_repeat_or_raise_if_unsafe(group) and _is_open_ended_repeat(following[0].text)
    return separated


def _has_repeat_or_raise_if_unsafe(group: list[_RegexToken]) -> bool:
    if any(token.kind in ("either", "opening") for token in group):
        raise UnsupportedExpression
    varies = any(token.kind == "repeat" for token in group)
    begins = varies and group[1].kind != "repeat" and _is_separator(group[0], group[1:])
    if varies and not begins and not _is_separator(group[-1], group[:-1]):
        raise UnsupportedExpression
    return varies


def _is_separator(token: _RegexToken, others: list[_RegexToken]) -> bool:
    """Return whether a token is a character that no other token of its group matches."""
    if token.kind not in ("escaped", "literal"):
        return False
    one = [other for other in others if other.kind != "repeat"]
    return not any(re.fullmatch(other.python, token.text) for other in one)


FieldRule = tuple[str, dict[str, Any]]
"""A column, and the attributes of Field to set."""

_MIRRORED_OPERATORS = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}
_LENGTH_FUNCTIONS = ("length", "char_length", "character_length")
_SHOWN_PATTERN_MAX_CHARS = 100
INTEGER_BOUND_MAX_DIGITS = 30  # more than any integer type has


def parse_check_rules(expression: str, columns: Mapping[str, CatalogColumn]) -> list[FieldRule]:
    """Return the rules in an expression, without parts that only PostgreSQL can check. NULL passes every rule."""
    try:
        tree = parse_expression(expression)
    except UnsupportedExpression:
        return []
    return list(_iter_rules_of_and_parts(tree, columns))


def is_fully_translated(expression: str, columns: Mapping[str, CatalogColumn]) -> bool:
    """Return whether the rules cover the whole expression."""
    try:
        parts = _flatten_and_operands(parse_expression(expression))
    except UnsupportedExpression:
        return False
    return len(parse_check_rules(expression, columns)) == len(parts)


def _flatten_and_operands(node: ExpressionNode) -> list[ExpressionNode]:
    return [leaf for part in node.parts for leaf in _flatten_and_operands(part)] if node.kind == "and" else [node]


def _iter_rules_of_and_parts(node: ExpressionNode, columns: Mapping[str, CatalogColumn]) -> Iterator[FieldRule]:
    """Yield the rules of the parts of an AND, and skip unsupported parts."""
    for part in _flatten_and_operands(node):
        try:
            yield _translate_node(part, columns)
        except UnsupportedExpression:
            continue


def _translate_node(node: ExpressionNode, columns: Mapping[str, CatalogColumn]) -> FieldRule:
    if node.kind == "or":
        return _translate_or(node, columns)
    if node.kind == "not null":
        return _resolve_column(node.parts[0], columns).name, {"nullable": False}
    if node.kind == "any" and node.value == "=":
        return _build_allowed_values_rule(_resolve_column(node.parts[0], columns), _list_array_constants(node.parts[1]))
    if node.kind == "operator" and node.value is not None:
        return _translate_comparison(node.value, node.parts[0], node.parts[1], columns)
    raise UnsupportedExpression


def _translate_or(node: ExpressionNode, columns: Mapping[str, CatalogColumn]) -> FieldRule:
    """Return the rule of ``x IS NULL OR rule of x``, or the values of ``x = 'a' OR x = 'b'``."""
    free = {_resolve_column(part.parts[0], columns).name for part in node.parts if part.kind == "null"}
    rules = [_translate_node(part, columns) for part in node.parts if part.kind != "null"]
    names = {name for name, _ in rules} | free
    if len(names) != 1 or not rules or any("nullable" in rule for _, rule in rules):
        raise UnsupportedExpression
    if len(rules) == 1:
        return rules[0]
    if any(set(rule) != {"enum"} for _, rule in rules):
        raise UnsupportedExpression
    return names.pop(), {"enum": tuple(dict.fromkeys(value for _, rule in rules for value in rule["enum"]))}


def _translate_comparison(
    operator: str, left: ExpressionNode, right: ExpressionNode, columns: Mapping[str, CatalogColumn]
) -> FieldRule:
    if operator in ("~", "~*"):
        return _build_pattern_rule(
            _resolve_column(left, columns), get_constant_text(right), ignore_case=operator == "~*"
        )
    if operator not in _MIRRORED_OPERATORS:
        raise UnsupportedExpression
    if _is_constant(left):
        left, right, operator = right, left, _MIRRORED_OPERATORS[operator]
    bound = get_constant_text(right)
    if bound is None:
        raise UnsupportedExpression
    if left.kind == "call":
        return _build_length_rule(left, operator, bound, columns)
    column = _resolve_column(left, columns)
    if operator == "=":
        return _build_allowed_values_rule(column, [bound])
    if operator == "<>":
        return _build_not_empty_rule(column, bound)
    return column.name, _build_bound_rule(column, operator, bound)


def _is_constant(node: ExpressionNode) -> bool:
    return node.kind == "constant" or (node.kind == "cast" and _is_constant(node.parts[0]))


def _resolve_column(node: ExpressionNode, columns: Mapping[str, CatalogColumn]) -> CatalogColumn:
    """Return the column of a node, also inside a cast that does not change the value."""
    if node.kind == "column" and (node.value or "") in columns:
        return columns[node.value or ""]
    if node.kind != "cast":
        raise UnsupportedExpression
    column = _resolve_column(node.parts[0], columns)
    whole_numbers = get_column_type(column) == "integer" and node.value in NUMERIC_SQL_TYPES
    if not whole_numbers and not (column.compares_like_python_text and node.value in TEXT_SQL_TYPES[:2]):
        raise UnsupportedExpression
    return column


def _list_array_constants(node: ExpressionNode) -> list[str]:
    """Return the values of ``ARRAY[…]``, also inside a cast."""
    if node.kind == "cast" and node.parts[0].kind == "array":
        node = node.parts[0]
    if node.kind != "array" or not node.parts:
        raise UnsupportedExpression
    values = [get_constant_text(part) for part in node.parts]
    if None in values:
        raise UnsupportedExpression  # a comparison with NULL is NULL, which passes a CHECK
    return [value for value in values if value is not None]


def _build_allowed_values_rule(column: CatalogColumn, values: list[str]) -> FieldRule:
    if column.compares_like_python_text:
        return column.name, {"enum": tuple(dict.fromkeys(values))}
    numbers = sorted(_parse_decimal(value) for value in values)
    if get_column_type(column) not in ("integer", "number"):
        raise UnsupportedExpression
    return column.name, {"minimum": _format_decimal(numbers[0]), "maximum": _format_decimal(numbers[-1])}


def _build_not_empty_rule(column: CatalogColumn, value: str) -> FieldRule:
    if value or not column.compares_like_python_text or column.labels:
        raise UnsupportedExpression
    return column.name, {"min_length": 1}


def _build_pattern_rule(column: CatalogColumn, regex: str | None, *, ignore_case: bool) -> FieldRule:
    if regex is None or not column.compares_like_python_text:
        raise UnsupportedExpression
    shown = regex if len(regex) <= _SHOWN_PATTERN_MAX_CHARS else regex[:_SHOWN_PATTERN_MAX_CHARS] + "…"
    return column.name, {
        "pattern": translate_regex(regex, ignore_case=ignore_case),
        "pattern_says": f"a match for {shown}",
    }


def _build_length_rule(
    call: ExpressionNode, operator: str, bound: str, columns: Mapping[str, CatalogColumn]
) -> FieldRule:
    if call.value not in _LENGTH_FUNCTIONS or len(call.parts) != 1:
        raise UnsupportedExpression
    column = _resolve_column(call.parts[0], columns)
    if not column.compares_like_python_text or column.labels:
        raise UnsupportedExpression
    low, high = _compute_integer_bounds(operator, _parse_decimal(bound))
    limits = {"min_length": low if low is None else max(low, 0), "max_length": high if high is None else max(high, 0)}
    return column.name, {name: limit for name, limit in limits.items() if limit is not None}


def _build_bound_rule(column: CatalogColumn, operator: str, bound: str) -> dict[str, Any]:
    type_ = get_column_type(column)
    if type_ == "number":
        name = {">": "above", ">=": "minimum", "<": "below", "<=": "maximum"}[operator]
        return {name: _format_decimal(_parse_decimal(bound))}
    if type_ == "integer":
        return _make_min_max_rule(*_compute_integer_bounds(operator, _parse_decimal(bound)), str)
    if type_ == "date":
        step = timedelta(days=1) if operator in ("<", ">") else timedelta()
        day = _parse_date(bound)
        try:
            low, high = day + step if ">" in operator else None, day - step if "<" in operator else None
        except OverflowError:  # PostgreSQL has days before the year 1 and after the year 9999
            raise UnsupportedExpression from None
        return _make_min_max_rule(low, high, str)
    raise UnsupportedExpression  # text is ordered by collation; times have several text forms


def _compute_integer_bounds(operator: str, bound: Decimal) -> tuple[int | None, int | None]:
    """Return the lowest and the highest integer that a comparison allows."""
    if bound and bound.adjusted() > INTEGER_BOUND_MAX_DIGITS:
        raise UnsupportedExpression
    floor, ceiling = int(bound.to_integral_value(ROUND_FLOOR)), int(bound.to_integral_value(ROUND_CEILING))
    return {
        ">": (floor + 1, None),
        ">=": (ceiling, None),
        "<": (None, ceiling - 1),
        "<=": (None, floor),
        "=": (ceiling, floor),
    }.get(operator, (None, None))


def _make_min_max_rule(low: Any, high: Any, text: Callable[[Any], str]) -> dict[str, Any]:
    return {name: text(value) for name, value in (("minimum", low), ("maximum", high)) if value is not None}


def _parse_decimal(text: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise UnsupportedExpression from None
    if not value.is_finite():
        raise UnsupportedExpression
    return value


def _format_decimal(value: Decimal) -> str:
    return format(value, "f")


def _parse_date(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise UnsupportedExpression from None
