"""Rules of repairs: the values that they compute, and rules that are refused."""

from decimal import Decimal
from typing import Any

import pytest

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.imports.repair_rules import compute_new_values, parse_repair_rule


def new_values(rule: dict[str, Any], value: Any, *, is_invalid: bool = True, max_chars: int = 1_000) -> dict[str, Any]:
    row = {"a": value, "b": "B"}
    return compute_new_values(parse_repair_rule(rule), row, "a", is_invalid=is_invalid, max_chars=max_chars)


@pytest.mark.parametrize(
    ("rule", "value", "changed"),
    [
        ({"type": "replace", "find": "x", "replacement": "yy"}, "axxb", {"a": "ayyyyb"}),
        ({"type": "replace", "find": " kg"}, "12 kg", {"a": "12"}),
        ({"type": "replace", "find": "x", "replacement": "y"}, "abc", {}),
        ({"type": "replace", "find": "x", "replacement": "y", "whole": True}, "xx", {}),
        ({"type": "replace", "find": "x", "replacement": "y", "whole": True}, "x", {"a": "y"}),
        ({"type": "replace", "find": "", "replacement": "y", "whole": True}, None, {"a": "y"}),
        ({"type": "replace", "find": "1", "replacement": "2"}, 11, {"a": "22"}),
        ({"type": "replace", "find": ".50", "replacement": ""}, Decimal("1.50"), {"a": "1"}),
        ({"type": "replace", "find": "t", "replacement": "f"}, True, {"a": "frue"}),
        ({"type": "replace", "find": "x", "replacement": "y"}, ["x"], {}),
        ({"type": "translate", "values": {"Germany": "DE"}}, " Germany ", {"a": "DE"}),
        ({"type": "translate", "values": {" ": "blank"}}, " ", {"a": "blank"}),
        ({"type": "translate", "values": {"Germany": "DE"}}, "germany", {}),
        ({"type": "translate", "values": {"n/a": None}}, "n/a", {"a": None}),
        ({"type": "split", "separator": ", ", "into": ["a", "b"]}, "X, Y, Z", {"a": "X", "b": "Y, Z"}),
        ({"type": "split", "separator": ",", "into": ["b", "a"]}, "X,Y", {"b": "X", "a": "Y"}),
        ({"type": "split", "separator": ";", "into": ["a", "b"]}, "X,Y", {}),
        ({"type": "format", "format": "DD.MM.YYYY"}, " 31.12.2026 ", {"a": "2026-12-31"}),
        ({"type": "format", "format": "DD.MM.YYYY"}, "12/31/2026", {}),
        ({"type": "format", "format": "decimal-comma"}, "-1.234.567,89", {"a": "-1234567.89"}),
        ({"type": "format", "format": "decimal-comma"}, "x", {}),
        ({"type": "format", "format": "decimal-comma"}, "1" * 1_000, {}),
        ({"type": "format", "format": "decimal-comma+nulls"}, "7", {}),
        ({"type": "default", "value": 7}, "x", {"a": 7}),
        ({"type": "default", "value": None}, "x", {"a": None}),
        ({"type": "default", "value": "x"}, "x", {}),
        ({"type": "drop"}, "x", {}),
    ],
)
def test_rule_returns_only_changed_values(rule: dict[str, Any], value: Any, changed: dict[str, Any]) -> None:
    assert new_values(rule, value) == changed


def test_default_rule_keeps_valid_value_of_other_column() -> None:
    assert new_values({"type": "default", "value": "d"}, "x", is_invalid=False) == {}
    assert new_values({"type": "default", "value": "d"}, " ", is_invalid=False) == {"a": "d"}


def test_replacement_that_exceeds_row_limit_is_refused_before_it_is_built() -> None:
    rule = {"type": "replace", "find": "x", "replacement": "y" * 10_000}
    with pytest.raises(TooLarge, match="10,000,000,000 characters"):
        new_values(rule, "x" * 1_000_000, max_chars=1 << 20)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "type"),
        ({"type": "delete"}, "delete"),
        ({"type": "replace"}, "find"),
        ({"type": "replace", "find": ""}, '"find" must not be empty'),
        ({"type": "replace", "find": "a", "regex": True}, "regex"),
        ({"type": "replace", "find": "a", "replacement": "x" * 10_001}, "10000"),
        ({"type": "replace", "find": "\x00", "replacement": ""}, "NUL"),
        ({"type": "translate", "values": {}}, "length >= 1"),
        ({"type": "translate", "values": {str(n): "" for n in range(1_001)}}, "1000"),
        ({"type": "translate", "values": {"a": "\ud800"}}, "surrogate"),
        ({"type": "split", "separator": "", "into": ["a", "b"]}, "length >= 1"),
        ({"type": "split", "separator": ",", "into": ["a", "a"]}, "two different columns"),
        ({"type": "split", "separator": ",", "into": ["a"]}, "length 2"),
        ({"type": "format", "format": "DD.MM"}, 'Unknown format "DD.MM"'),
        ({"type": "default", "value": float("nan")}, "not a valid JSON number"),
        ({"type": "default", "value": {"a": 1}}, "value"),
    ],
)
def test_invalid_rule_is_rejected(rule: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_repair_rule(rule)
