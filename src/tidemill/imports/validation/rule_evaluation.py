"""Evaluates row rules for all rows of a batch at a time. A cell that cannot be computed is a ``RuleFailure``.

Outer spaces do not matter in comparisons, and an empty cell equals only ``''``. A comparison is of numbers or of dates
if one side is a number, or a field of such a type; else of texts. A field of such a type can also equal, contain or
start with any text; then the text in the file is compared.
"""

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import (
    ROUND_HALF_UP,
    Context,
    Decimal,
    DecimalException,
    DivisionByZero,
    Inexact,
    InvalidOperation,
    Overflow,
    Underflow,
)
from typing import Any, NoReturn, TypeAlias

from tidemill.imports.validation.canonical_values import make_comparable_parser
from tidemill.tables.resource import Field
from tidemill.tables.row_rules import (
    Arithmetic,
    Call,
    Comparison,
    Emptiness,
    Junction,
    Literal,
    Membership,
    Name,
    Negation,
    Node,
    RowRule,
    iter_nodes,
    raise_rule_error,
)
from tidemill.tables.values.column_texts import ColumnTexts
from tidemill.tables.values.type_readers import TYPE_READERS

RESULT_MAX_CHARS = 10_000  # of concat and replace, the functions whose result can be longer than their values
SLICE_ROWS = 500  # rows whose texts of concat and replace are computed together
NUMBER_TEXT_MAX_CHARS, EXPONENT_MAX, PRODUCT_MAX_DIGITS, QUOTIENT_DIGITS = 120, 100, 200, 40
_EXACT = Context(prec=PRODUCT_MAX_DIGITS, traps=[InvalidOperation, Overflow, Inexact, Underflow])
_DIVISION = Context(prec=QUOTIENT_DIGITS, traps=[InvalidOperation, DivisionByZero, Overflow])
_ROUNDING = Context(prec=PRODUCT_MAX_DIGITS, rounding=ROUND_HALF_UP, traps=[InvalidOperation, Overflow])
_match_number = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?").fullmatch
_TEMPORAL_TYPES = ("date", "time", "timestamp")


@dataclass(frozen=True, slots=True)
class RuleFailure:
    """Why a cell cannot be computed."""

    reason: str


class UnreadableText(str):
    """The text of a field in the file, if it is not a value of the field's type."""

    __slots__ = ()


Cell: TypeAlias = Any  # str, Decimal, bool, None or RuleFailure
Cells: TypeAlias = list[Cell]
Inputs: TypeAlias = Mapping[str, ColumnTexts]
Evaluate: TypeAlias = Callable[[Inputs, int], Cells]
_TOO_LONG = RuleFailure(f"the result has more than {RESULT_MAX_CHARS:,} characters")
_TOO_MANY_DIGITS = RuleFailure(f"the result has more than {PRODUCT_MAX_DIGITS} digits")
_DIVIDED_BY_ZERO = RuleFailure("a number is divided by zero")


@dataclass(frozen=True, slots=True)
class _Part:
    """A compiled part of a rule. ``field`` is set if its values have a type that is compared by value."""

    kind: str  # text, number, date, time, timestamp or condition
    evaluate: Evaluate
    label: str = ""  # for messages
    field: Field | None = None
    may_fail: bool = False  # whether a cell may be a failure
    is_column: bool = False  # whether the cells are texts of the file or None


def compile_rule(rule: RowRule, fields: Mapping[str, Field | None], *, owner: str = "") -> Evaluate:
    """Return a function that evaluates a rule for many rows.

    Args:
        rule: The rule.
        fields: The field of each name in the rule; None for a column without a field, which is text.
        owner: The result of the function ``owner``.

    Raises:
        InvalidInput: A value has a type that does not fit its place in the rule.
    """
    evaluate = _RuleCompiler(rule, fields, owner).compile(rule.node).evaluate
    may_grow = any(isinstance(node, Call) and node.function in ("concat", "replace") for node in iter_nodes(rule.node))
    return _evaluate_in_slices(evaluate) if may_grow else evaluate


def to_texts(cells: Cells) -> ColumnTexts:
    """Return computed cells as texts. Failures become None."""
    return [_to_text(cell) if type(cell) is not RuleFailure else None for cell in cells]


def _evaluate_in_slices(evaluate: Evaluate) -> Evaluate:
    """Return a function that does not hold the intermediate results of all rows of a batch together."""

    def evaluate_slices(inputs: Inputs, count: int) -> Cells:
        cells: Cells = []
        for start in range(0, count, SLICE_ROWS):
            end = min(start + SLICE_ROWS, count)
            cells += evaluate({name: texts[start:end] for name, texts in inputs.items()}, end - start)
        return cells

    return evaluate_slices


class _RuleCompiler:
    def __init__(self, rule: RowRule, fields: Mapping[str, Field | None], owner: str) -> None:
        self._rule, self._fields, self._owner = rule, fields, owner

    def compile(self, node: Node) -> _Part:
        match node:
            case Literal(value=value):
                return _Part("text" if isinstance(value, str) else "number", _repeat(value))
            case Name(name=name):
                return self._compile_name(name)
            case Call():
                return self._compile_call(node)
            case Arithmetic():
                return self._compile_arithmetic(node)
            case Comparison():
                return self._compile_comparison(node)
            case Membership():
                return self._compile_membership(node)
            case Emptiness(value=value):
                return _map_distinct("condition", lambda cell: not _to_stripped_text(cell), self.compile(value))
            case Junction(operator=joins, parts=parts):
                return _map_cells("condition", _JUNCTIONS[joins], *map(self.compile, parts))
            case Negation(part=part):
                return _map_parts("condition", operator.not_, self.compile(part))

    def _compile_name(self, name: str) -> _Part:
        field = self._fields[name]
        kind = "text" if field is None else "number" if field.type in ("integer", "number") else field.type
        kind = kind if kind in ("number", *_TEMPORAL_TYPES) else "text"
        typed = field if kind != "text" else None
        return _Part(kind, lambda inputs, _: inputs[name], f'"{name}"', typed, is_column=True)

    def _compile_call(self, node: Call) -> _Part:
        if node.function == "owner":
            return _Part("text", _repeat(self._owner))
        parts = [self.compile(argument) for argument in node.arguments]
        if node.function == "if":
            kind, values = self._unify_kinds(parts[1:], node.arguments[1:])
            return _map_cells(kind, _choose, parts[0], *values)
        if node.function == "coalesce":
            kind, values = self._unify_kinds(parts, node.arguments)
            return _map_cells(kind, _take_first_value, *values)
        if node.function == "round":
            digits = _get_whole_number(node.arguments[1])
            number = self._make_numeric(parts[0], node.arguments[0])
            return _map_parts("number", lambda cell: _round(cell, digits), number, may_fail=True)
        texts = list(map(_make_textual, parts))
        match node.function:
            case "concat":
                return _map_parts("text", _concatenate, *texts, may_fail=True)
            case "replace":
                return _map_parts("text", _replace, *texts, may_fail=True)
            case "split_part":
                place = _get_whole_number(node.arguments[2])
                return _map_parts("text", lambda cell, separator: _split(cell, separator, place), *texts[:2])
            case "left" | "right":
                count = _get_whole_number(node.arguments[1])
                cut = _take_left if node.function == "left" else _take_right
                return _map_parts("text", lambda cell: cell and cut(cell, count), texts[0])
            case _:
                change = _TEXT_CHANGES[node.function]
                return _map_parts("text", lambda cell: cell and change(cell), texts[0])

    def _unify_kinds(self, parts: Sequence[_Part], nodes: Sequence[Node]) -> tuple[str, list[_Part]]:
        """Return the parts as numbers if all are numbers, else as texts."""
        if all(part.kind == "number" for part in parts):
            return "number", [self._make_numeric(part, node) for part, node in zip(parts, nodes, strict=True)]
        return "text", list(map(_make_textual, parts))

    def _compile_arithmetic(self, node: Arithmetic) -> _Part:
        left = self._make_numeric(self.compile(node.left), node.left)
        right = self._make_numeric(self.compile(node.right), node.right)
        compute = _ARITHMETIC[node.operator]
        return _map_parts("number", compute, left, right, may_fail=True)

    def _compile_comparison(self, node: Comparison) -> _Part:
        left, right = self.compile(node.left), self.compile(node.right)
        if node.operator in _TEXT_COMPARISONS:
            return _compare_texts(_TEXT_COMPARISONS[node.operator], left, right, node.right)
        kind = self._choose_kind(node, left, right)
        if kind == "text":
            return _compare_texts(_COMPARISONS[node.operator], left, right, node.right)
        if kind == "number":
            left, right = self._make_numeric(left, node.left), self._make_numeric(right, node.right)
        else:
            field = next(part.field for part in (left, right) if part.kind == kind)
            assert field is not None  # noqa: S101  only fields have these kinds
            left, right = _make_temporal(left, node.left, field), _make_temporal(right, node.right, field)
        return _map_parts("condition", _compare_values(node.operator), left, right)

    def _choose_kind(self, node: Comparison, left: _Part, right: _Part) -> str:
        """Return how to compare two sides: by the type of a field or a number, else as texts."""
        kinds = {left.kind, right.kind} - {"text"}
        if not kinds:
            return "text"
        if kinds == {"date", "timestamp"}:
            return "timestamp"
        if len(kinds) > 1:
            self._fail(node.at, f"cannot compare a {left.kind} with a {right.kind}")
        (kind,) = kinds
        typed, other = (right, node.left) if left.kind == "text" else (left, node.right)
        if not isinstance(other, Literal) or _is_literal_of_kind(other, kind, typed.field):
            return kind
        if typed.field is None or node.operator not in ("=", "!="):
            self._fail(other.at, f"expected a {kind}, such as {_EXAMPLES[kind]}")
        return "text"  # the text in the file

    def _compile_membership(self, node: Membership) -> _Part:
        value = self.compile(node.value)
        if value.kind == "number" and all(_is_literal_of_kind(one, "number", None) for one in node.choices):
            numbers = frozenset(_parse_number(one.value) for one in node.choices)
            return _map_parts("condition", numbers.__contains__, self._make_numeric(value, node.value))
        if value.field is not None and value.kind != "number":
            equal = [Comparison("=", node.value, one, node.at) for one in node.choices]
            return self.compile(Junction("or", tuple(equal), node.at))
        texts = frozenset(_to_stripped_text(one.value) for one in node.choices)
        return _map_distinct("condition", lambda cell: _to_stripped_text(cell) in texts, value)

    def _make_numeric(self, part: _Part, node: Node) -> _Part:
        if part.kind in _TEMPORAL_TYPES:
            self._fail(node.at, f"expected a number, and {part.label or 'this'} is a {part.kind}")
        if isinstance(node, Literal) and isinstance(node.value, str) and _parse_number(node.value) is _INVALID:
            self._fail(node.at, "expected a number, not a text")
        if isinstance(node, Literal):
            return _Part("number", _repeat(_parse_number(node.value)))
        failure = RuleFailure(f"{part.label or f'the value at character {node.at + 1}'} is not a number")

        def convert(cell: Cell) -> Cell:
            number = _parse_number(cell)
            return failure if number is _INVALID else number

        return (
            part
            if part.kind == "number" and not part.is_column
            else _map_distinct("number", convert, part, may_fail=True)
        )

    def _fail(self, at: int, problem: str) -> NoReturn:
        subject = "condition" if self._rule.is_condition else "expression"
        raise_rule_error(subject, self._rule.text, at, problem)


_INVALID = object()
_TEXT_CHANGES: dict[str, Callable[[str], str]] = {"lower": str.lower, "upper": str.upper, "trim": str.strip}
_EXAMPLES = {"number": "12.5", "date": "'2026-11-15'", "time": "'13:45:00'", "timestamp": "'2026-11-15T13:45:00Z'"}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_TEXT_COMPARISONS: dict[str, Callable[[str, str], bool]] = {
    "contains": operator.contains,
    "starts": str.startswith,
    "ends": str.endswith,
}


def _repeat(value: Cell) -> Evaluate:
    return lambda _, count: [value] * count


def _make_textual(part: _Part) -> _Part:
    return _map_parts("text", _to_text, part) if part.kind == "number" and not part.is_column else part


def _map_cells(kind: str, function: Callable[..., Cell], *parts: _Part) -> _Part:
    """Return a part whose cells are computed by a function that also takes failures."""
    columns = [part.evaluate for part in parts]
    may_fail = any(part.may_fail for part in parts)
    return _Part(
        kind, lambda inputs, count: list(map(function, *(one(inputs, count) for one in columns))), may_fail=may_fail
    )


def _map_parts(kind: str, function: Callable[..., Cell], *parts: _Part, may_fail: bool = False) -> _Part:
    """Return a part whose cells are computed by a function. The first failure of its arguments is its result.

    ``may_fail``: the function itself may return a failure.
    """
    if not any(part.may_fail for part in parts):
        return replace(_map_cells(kind, function, *parts), may_fail=may_fail)

    def call(*cells: Cell) -> Cell:
        for cell in cells:
            if type(cell) is RuleFailure:
                return cell
        return function(*cells)

    return _map_cells(kind, call, *parts)


def _map_distinct(kind: str, function: Callable[[Cell], Cell], part: _Part, *, may_fail: bool = False) -> _Part:
    """Return a part as ``_map_parts`` does. The function is called once for each text of a column of the file."""
    if not part.is_column:
        return _map_parts(kind, function, part, may_fail=may_fail)

    def evaluate(inputs: Inputs, count: int) -> Cells:
        cells = part.evaluate(inputs, count)
        if UnreadableText in set(map(type, cells)):  # equal to a text that can be read
            return list(map(function, cells))
        results = {cell: function(cell) for cell in set(cells)}
        return list(map(results.__getitem__, cells))

    return _Part(kind, evaluate, may_fail=may_fail)


def _to_text(cell: Cell) -> str | None:
    if type(cell) is Decimal:
        return format(cell, "f")
    return cell if cell is None or isinstance(cell, str) else "true" if cell else "false"


def _to_stripped_text(cell: Cell) -> str:
    return (_to_text(cell) or "").strip()


def _parse_number(cell: Cell) -> Any:
    """Return the number in a cell, None for an empty cell, ``_INVALID`` for other texts."""
    if cell is None or type(cell) is Decimal:
        return cell
    text = cell.strip()
    if not text:
        return None
    if type(cell) is UnreadableText or len(text) > NUMBER_TEXT_MAX_CHARS or not _match_number(text):
        return _INVALID
    number = Decimal(text)
    return number if abs(number.adjusted()) <= EXPONENT_MAX else _INVALID


def _is_literal_of_kind(literal: Literal, kind: str, field: Field | None) -> bool:
    if kind == "number":
        return _parse_number(literal.value) not in (None, _INVALID)
    assert field is not None  # noqa: S101  only fields have these kinds
    return isinstance(literal.value, str) and not TYPE_READERS[field.type](field, [literal.value.strip()])[1]


def _make_temporal(part: _Part, node: Node, field: Field) -> _Part:
    """Return a part with dates or times to compare. A date is also a timestamp."""
    parse, read = make_comparable_parser(field), TYPE_READERS[field.type]
    failure = RuleFailure(f"{part.label or f'the value at character {node.at + 1}'} is not a {field.type}")

    def convert(cell: Cell) -> Cell:
        text = _to_stripped_text(cell)
        if not text:
            return None
        if field.type == "timestamp" and part.kind == "date":
            return parse(text)
        (found,), wrong = read(field, [text])
        return failure if wrong or found is None or type(cell) is UnreadableText else parse(found)

    if isinstance(node, Literal):
        return _Part(field.type, _repeat(convert(node.value)))
    return _map_distinct(field.type, convert, part, may_fail=True)


def _compare_texts(compare: Callable[[Any, Any], bool], left: _Part, right: _Part, right_node: Node) -> _Part:
    if isinstance(right_node, Literal):
        text = _to_stripped_text(right_node.value)
        return _map_distinct("condition", lambda cell: compare(_to_stripped_text(cell), text), left)
    return _map_parts(
        "condition", lambda one, two: compare(_to_stripped_text(one), _to_stripped_text(two)), left, right
    )


def _compare_values(sign: str) -> Callable[[Cell, Cell], bool]:
    """Return a comparison in which an empty cell equals only an empty cell, and is neither less nor greater."""
    compare = _COMPARISONS[sign]

    def compare_cells(left: Cell, right: Cell) -> bool:
        if left is None or right is None:
            return sign in ("=", "!=") and (left is right) == (sign == "=")
        return compare(left, right)

    return compare_cells


def _join_conjunction(*cells: Cell) -> Cell:
    if False in cells:
        return False
    return next((cell for cell in cells if type(cell) is RuleFailure), True)


def _join_disjunction(*cells: Cell) -> Cell:
    if True in cells:
        return True
    return next((cell for cell in cells if type(cell) is RuleFailure), False)


_JUNCTIONS = {"and": _join_conjunction, "or": _join_disjunction}


def _choose(condition: Cell, value: Cell, other: Cell) -> Cell:
    return condition if type(condition) is RuleFailure else value if condition else other


def _take_first_value(*cells: Cell) -> Cell:
    for cell in cells:
        if type(cell) is RuleFailure or _to_stripped_text(cell):
            return cell
    return None


def _concatenate(*cells: str | None) -> Cell:
    texts = [cell for cell in cells if cell]
    return _TOO_LONG if sum(map(len, texts)) > RESULT_MAX_CHARS else "".join(texts)


def _replace(cell: str | None, find: str | None, new: str | None) -> Cell:
    if not cell or not find:
        return cell
    new = new or ""
    if len(new) > len(find) and len(cell) + cell.count(find) * (len(new) - len(find)) > RESULT_MAX_CHARS:
        return _TOO_LONG  # not computed: a short rule could allocate gigabytes
    return cell.replace(find, new)


def _split(cell: str | None, separator: str | None, number: int) -> str | None:
    if not cell or not separator:
        return cell if number == 1 else None
    parts = cell.split(separator, number)
    return parts[number - 1] if 0 < number <= len(parts) else None


def _take_left(text: str, count: int) -> str:
    return text[:count]


def _take_right(text: str, count: int) -> str:
    return text[max(len(text) - count, 0) :]


def _get_whole_number(node: Node) -> int:
    assert isinstance(node, Literal)  # noqa: S101  checked by the parser
    return int(node.value)


def _round(cell: Decimal | None, digits: int) -> Cell:
    if cell is None:
        return None
    try:
        return _ROUNDING.quantize(cell, Decimal((0, (1,), -digits)))
    except DecimalException:
        return _TOO_MANY_DIGITS


def _make_operation(compute: Callable[[Decimal, Decimal], Decimal]) -> Callable[[Cell, Cell], Cell]:
    def calculate(left: Decimal | None, right: Decimal | None) -> Cell:
        if left is None or right is None:
            return None
        try:
            return compute(left, right)
        except DecimalException:
            return _TOO_MANY_DIGITS

    return calculate


def _divide(left: Decimal, right: Decimal) -> Cell:
    if not right:
        return _DIVIDED_BY_ZERO
    quotient = _DIVISION.divide(left, right)
    return quotient.normalize(_DIVISION)


_ARITHMETIC = {
    "+": _make_operation(_EXACT.add),
    "-": _make_operation(_EXACT.subtract),
    "*": _make_operation(_EXACT.multiply),
    "/": _make_operation(_divide),
}
