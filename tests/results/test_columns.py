"""Columns and cells, as pure functions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.columns import (
    LARGEST_EXACT,
    MAX_COLUMNS,
    NAME_MAX,
    Columns,
    cell,
    cells,
    columns_of,
    names_in,
    record,
)
from tidemill.domain.standing import Standing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def done(result: object, seq: int = 0) -> dict[str, object]:
    return {"seq": seq, "status": "done", "result": result, "error": None}


def test_an_object_has_its_keys_as_columns_and_anything_else_has_one() -> None:
    assert names_in({"b": 1, "a": 2}) == ["b", "a"]
    assert [names_in(value) for value in ([1], "text", 7, False, 0, "")] == [["result"]] * 6
    assert names_in(None) == names_in({}) == []


def test_more_than_so_many_columns_and_longer_names_get_none() -> None:
    assert len(names_in({str(n): n for n in range(1_000)})) == MAX_COLUMNS
    assert names_in({"x" * NAME_MAX: 1, "x" * (NAME_MAX + 1): 2}) == ["x" * NAME_MAX]


def test_a_job_without_result_columns_shows_its_inputs() -> None:
    assert columns_of(["a"], {"b": 1}) == Columns(("a",))
    assert columns_of([], {"b": 1, "a": 2}) == Columns(("b", "a"), "input")
    assert columns_of([], "text") == columns_of([], {}) == columns_of([], None) == Columns(("input",), "input")
    row = {"seq": 4, "status": "pending", "result": None, "error": None, "input": {"b": [1], "a": "x"}}
    assert cells(Columns(("b", "a"), "input"), row) == ["[1]", "x", 5, "pending", None, None]
    assert cells(Columns(("input",), "input"), row | {"input": "text"}) == ["text", 5, "pending", None, None]


def test_own_columns_keep_apart_from_columns_of_the_same_name() -> None:
    assert Columns(("a",)).header == ("a", "_row", "_status", "_error_code", "_error")
    assert Columns(("_row", "__row", "_error")).own == ("___row", "_status", "_error_code", "__error")


def test_a_cell_is_plain_or_compact_json() -> None:
    plain = [None, "", "007", True, False, 0, -1, 0.5, LARGEST_EXACT, -LARGEST_EXACT]
    assert [cell(value) for value in plain] == plain
    assert cell({"ž": [1, None]}) == '{"ž":[1,null]}'
    assert cell(LARGEST_EXACT + 1) == str(LARGEST_EXACT + 1)
    assert cell(-(10**30)) == str(-(10**30))


def test_a_missing_value_and_a_result_of_another_shape_leave_cells_empty() -> None:
    columns = Columns(("a", "result"))
    assert cells(columns, done({"a": 1}))[:2] == [1, None]
    assert cells(columns, done([1]))[:2] == [None, "[1]"]
    assert cells(columns, done(None))[:2] == [None, None]
    assert cells(columns, {"seq": 0, "status": "done"})[:2] == [None, None]


@pytest.mark.parametrize("status", ["pending", "processing", "retry_wait"])
def test_what_is_open_shows_nothing_of_an_earlier_round(status: str) -> None:
    row = {"seq": 0, "status": status, "result": {"a": 1}, "error": {"code": "x", "reason": "old"}}
    assert cells(Columns(("a",)), row) == [None, 1, status, None, None]
    assert record(Columns(("a",)), row)["a"] is None


def test_an_error_is_shown_by_its_code_and_its_reason() -> None:
    row = {"seq": 9, "status": "failed", "result": None, "error": {"code": "x", "reason": "why", "attempt": 3}}
    assert cells(Columns(("a",)), row) == [None, 10, "failed", "x", "why"]


def test_a_record_has_every_column_then_what_has_none_then_the_mills_own() -> None:
    columns = Columns(("b", "a"))
    assert list(record(columns, done({"z": [1], "a": 10**30}))) == ["b", "a", "z", *columns.own]
    assert record(columns, done({"z": [1], "a": 10**30}))["a"] == 10**30
    assert record(columns, done("text"))["result"] == "text"
    assert "result" not in record(columns, done(None))


def test_a_record_loses_no_value_to_the_mills_own_names() -> None:
    made = record(Columns(("a",)), done({"a": 1, "_row": "mine", "__row": "too"}))
    assert made["_row"] == 1
    assert sorted(str(value) for value in made.values() if value in ("mine", "too")) == ["mine", "too"]


@given(value=JSON, status=st.sampled_from(["done", "failed", "pending"]), seq=st.integers(0, 10**12))
def test_cells_are_as_many_as_the_header_has_and_a_record_says_the_same(value: object, status: str, seq: int) -> None:
    columns = columns_of(names_in(value), None)
    row = {"seq": seq, "status": status, "result": value, "error": {"code": "c", "reason": "r"}, "input": value}
    line = cells(columns, row)
    assert len(line) == len(columns.header)
    assert all(each is None or isinstance(each, str | int | float | bool) for each in line)
    made = record(columns, row)
    assert list(made)[: len(columns.names)] == list(columns.names)
    assert [cell(made[name]) for name in columns.header] == line
    json.dumps(made)


def test_standing_says_what_an_item_without_an_end_is() -> None:
    standing = Standing([(0, 10, "leased"), (20, 30, "ready"), (30, 40, "cancelled")], frozenset({15}))
    said = {seq: standing.status(seq, None) for seq in (0, 9, 10, 19, 20, 29, 30, 39, 40)}
    assert said == {
        0: "processing",
        9: "processing",
        10: None,
        19: None,
        20: "pending",
        29: "pending",
        30: "cancelled",
        39: "cancelled",
        40: None,
    }
    assert Standing(sparse=True).status(3, None) == "done"
    assert [standing.status(15, word) for word in ("retry_wait", "pending", "done")] == ["processing"] * 2 + ["done"]
    assert standing.status(16, "retry_wait") == "retry_wait"
