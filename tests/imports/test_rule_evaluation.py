"""Row rules on columns of cells: functions, comparisons, empty cells, failures and limits. And mistakes in rules."""

import tracemalloc
from decimal import Decimal
from typing import Any

import pytest

from tidemill.core.errors import InvalidInput
from tidemill.imports.validation.rule_evaluation import RESULT_MAX_CHARS, RuleFailure, UnreadableText, compile_rule
from tidemill.tables.resource import Field
from tidemill.tables.row_rules import RULE_MAX_CHARS, parse_computed_rule, parse_skip_rule

FIELDS = {
    "name": Field(name="name", column="name", type="text"),
    "price": Field(name="price", column="price", type="number"),
    "born": Field(name="born", column="born", type="date"),
    "at": Field(name="at", column="at", type="timestamp", with_zone=True),
}
CELLS: dict[str, list[str | None]] = {
    "name": ["Ada Lovelace", None, " deleted "],
    "price": ["9", "10", UnreadableText("12.000")],
    "born": ["2026-01-02", None, "1999-12-31"],
    "at": ["2026-01-02T00:00:00+02:00", "2026-01-02", None],
    "raw": ["9", "abc", ""],
}


def evaluate(text: str, cells: dict[str, list[str | None]] | None = None) -> list[Any]:
    rule = parse_computed_rule(text)
    inputs = cells or CELLS
    count = len(next(iter(inputs.values())))
    found = compile_rule(rule, {name: FIELDS.get(name) for name in rule.names}, owner="ada")(inputs, count)
    return [cell.reason if isinstance(cell, RuleFailure) else cell for cell in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("concat(name, '-', raw)", ["Ada Lovelace-9", "-abc", " deleted -"]),
        ("upper(left(name, 3))", ["ADA", None, " DE"]),
        ("right(trim(name), 2)", ["ce", None, "ed"]),
        ("split_part(name, ' ', 2)", ["Lovelace", None, "deleted"]),
        ("replace(name, 'e', '33')", ["Ada Lov33lac33", None, " d33l33t33d "]),
        ("coalesce(raw, name, 'none')", ["9", "abc", " deleted "]),
        ("if(born is empty, 'no', born)", ["2026-01-02", "no", "1999-12-31"]),
        ("owner()", ["ada"] * 3),
        ("round(if(raw = '9', 2, price), 1)", [Decimal("2.0"), Decimal("10.0"), '"price" is not a number']),
        ("upper(coalesce(2, name))", ["2"] * 3),
        ("replace(if(raw = '9', 1.50, name), '.', ',')", ["1,50", None, " deleted "]),
        ("price * 2 - 1", [Decimal(17), Decimal(19), '"price" is not a number']),
        ("round(price / 3, 2)", [Decimal("3.00"), Decimal("3.33"), '"price" is not a number']),
        ("-price", [Decimal(-9), Decimal(-10), '"price" is not a number']),
        ("1 / (price - 9)", ["a number is divided by zero", Decimal(1), '"price" is not a number']),
        ("raw + 1", [Decimal(10), '"raw" is not a number', None]),
        (
            "lower(name) + 1",
            ["the value at character 1 is not a number", None, "the value at character 1 is not a number"],
        ),
        ("if(raw = 'abc', 0, raw) + 1", [Decimal(10), Decimal(1), None]),
        ("price < 10", [True, False, '"price" is not a number']),
        ("price = '12.000'", [False, False, '"price" is not a number']),
        ("price = 'x' or price contains '.000'", [False, False, True]),
        ("name = 'deleted'", [False, False, True]),
        ("name != 'deleted'", [True, True, False]),
        ("name < 'b'", [True, True, False]),
        ("born >= '2000-01-01'", [True, False, False]),
        ("born != '2026-01-02'", [False, True, True]),
        ("born = 'never'", [False, False, False]),
        ("born in ('1999-12-31', 'never')", [False, False, True]),
        ("at < '2026-01-02'", [True, False, False]),
        ("at >= born", [False, False, False]),
        ("price in (9, 10.00)", [True, True, '"price" is not a number']),
        ("price not in ('nine')", [True, True, True]),
        ("name is empty or price > 9", [False, True, '"price" is not a number']),
        ("name is empty and price > 9", [False, True, False]),
        ("not name ends with 'd'", [True, True, False]),
        ("raw = ''", [False, False, True]),
        ("price = price", [True, True, '"price" is not a number']),
        ("raw = raw", [True, True, True]),
    ],
)
def test_rule_computes_cells(text: str, expected: list[Any]) -> None:
    assert evaluate(text) == expected


def test_results_are_limited_without_computing_them() -> None:
    cells: dict[str, list[str | None]] = {"raw": ["a" * 9_000, "9" * 150, "1e99", "1e-99"]}
    too_long = f"the result has more than {RESULT_MAX_CHARS:,} characters"
    assert evaluate("concat(raw, raw)", cells)[0] == too_long
    assert evaluate(f"replace(raw, 'a', '{'x' * 900}')", cells)[0] == too_long
    assert evaluate("lower(raw)", cells)[0] == "a" * 9_000
    assert evaluate("raw * 1", cells)[1] == '"raw" is not a number'
    assert evaluate("raw * raw - 1", cells)[2] == Decimal("9" * 198)
    assert evaluate("raw * raw * raw - 1", cells)[2] == "the result has more than 200 digits"
    for text in ("1e999999999", "NaN", "Infinity", "0x10", "1_0", "٣"):
        assert evaluate("raw + 1", {"raw": [text]}) == ['"raw" is not a number']


def test_intermediate_results_of_many_rows_are_not_held_together() -> None:
    texts: list[str | None] = ["a" * 100] * 4_000
    parts = [f"left(replace(raw, 'a', '{'b' * 99}{number}'), 1)" for number in range(5)]
    tracemalloc.start()
    try:
        assert evaluate(f"concat({', '.join(parts)})", {"raw": texts}) == ["bbbbb"] * 4_000
        assert tracemalloc.get_traced_memory()[1] < 20_000_000, "4,000 results of 10,000 characters are 40 MB"
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "at character 1: expected a value, not the end"),
        ("concat(a", "at character 9: expected , or ), not the end"),
        ("lowr(a)", 'at character 1: unknown function lowr; did you mean "lower"?'),
        ("eval(a)", "at character 1: unknown function eval. The functions are concat, lower"),
        ("a.b", "at character 2: unexpected character ."),
        ("__import__('os')", "unknown function __import__"),
        ("a + 'x'", "at character 5: expected a number for +, not a text. To join texts, use concat"),
        ("left(a, b)", "expected a whole number from 0 to 10,000: left(value, characters)"),
        ("left(a, 2.5)", "expected a whole number"),
        ("left(a)", "expected left(value, characters), not 1 arguments"),
        ("if(a, b, c)", "at character 4: expected a condition: if(condition, value, other value)"),
        ("concat(a = 1)", "expected a value, not a condition"),
        ("a in (b)", "at character 7: expected a text in quotes or a number"),
        ("'open", "at character 1: a text without its closing '"),
        ('"open', 'at character 1: a name without its closing "'),
        ("(" * 30 + "a", "at character 21: the expression is nested more than 20 levels deep"),
        ("not " * 30 + "a = 1", "nested more than 20 levels deep"),
        ("lower(" * 30 + "a", "nested more than 20 levels deep"),
        ("+".join("1" * 120), "the expression has more than 100 parts"),
        ("9" * 60, "the number has more than 50 digits"),
        ("a" * (RULE_MAX_CHARS + 1), "the expression is longer than 1,000 characters"),
        ("a" * 10_000_000, "the expression is longer than 1,000 characters"),
        ("concat('\0')", "contains a character that PostgreSQL cannot store"),
        ("price and name", "expected a condition beside and"),
        ("born + 1", 'expected a number, and "born" is a date'),
        ("price < 'cheap'", "at character 9: expected a number, such as 12.5"),
        ("born > 'soon'", "at character 8: expected a date, such as '2026-11-15'"),
        ("born = price", "cannot compare a date with a number"),
    ],
)
def test_mistake_in_expression_is_reported_with_position_and_expectation(text: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        evaluate(text)
    assert problem in str(caught.value)
    assert len(str(caught.value)) < 400


def test_skip_rule_must_be_a_condition() -> None:
    assert parse_skip_rule("\"First Name\" <> 'it''s'").names == {"First Name": 0}
    with pytest.raises(InvalidInput, match="at character 1: expected a condition, such as status = 'deleted'"):
        parse_skip_rule("lower(status)")
