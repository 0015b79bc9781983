"""Tests of the columns and cells of results."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import InvalidInput
from tidemill.core.result_grid import (
    COLUMN_NAME_MAX_CHARS,
    GRID_COLUMNS_MAX,
    LARGEST_EXACT_INTEGER,
    GridColumns,
    KnownFields,
    build_row_cells,
    format_cell,
    list_columns_of_value,
    list_nested_fields,
    resolve_grid_columns,
    resolve_result_file_columns,
)
from tidemill.core.status import ItemStatusResolver

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


def done(result: object, seq: int = 0) -> dict[str, object]:
    return {"seq": seq, "status": "done", "result": result, "error": None}


def test_object_result_has_its_keys_as_columns_and_other_results_have_one() -> None:
    assert list_columns_of_value({"b": 1, "a": 2}) == ["b", "a"]
    assert [list_columns_of_value(value) for value in ([1], "text", 7, False, 0, "")] == [["result"]] * 6
    assert list_columns_of_value(None) == list_columns_of_value({}) == []


def test_result_columns_beyond_count_or_name_limit_are_dropped() -> None:
    assert len(list_columns_of_value({str(n): n for n in range(1_000)})) == GRID_COLUMNS_MAX
    assert list_columns_of_value({"x" * COLUMN_NAME_MAX_CHARS: 1, "x" * (COLUMN_NAME_MAX_CHARS + 1): 2}) == [
        "x" * COLUMN_NAME_MAX_CHARS
    ]


def test_grid_shows_inputs_when_job_has_no_result_columns() -> None:
    assert resolve_grid_columns(["a"], {"b": 1}) == GridColumns(("a",))
    assert resolve_grid_columns([], {"b": 1, "a": 2}) == GridColumns(("b", "a"), "input")
    assert (
        resolve_grid_columns([], "text")
        == resolve_grid_columns([], {})
        == resolve_grid_columns([], None)
        == GridColumns(("input",), "input")
    )
    row = {"seq": 4, "status": "pending", "result": None, "error": None, "input": {"b": [1], "a": "x"}}
    assert build_row_cells(GridColumns(("b", "a"), "input"), row) == ["[1]", "x", 5, "pending", None, None]
    assert build_row_cells(GridColumns(("input",), "input"), row | {"input": "text"}) == [
        "text",
        5,
        "pending",
        None,
        None,
    ]


def test_meta_columns_are_renamed_on_conflict_with_result_columns() -> None:
    assert GridColumns(("a",)).header == ("a", "_row", "_status", "_error_code", "_error")
    assert GridColumns(("_row", "__row", "_error")).meta_names == ("___row", "_status", "_error_code", "__error")


def test_grid_cell_is_scalar_or_compact_json() -> None:
    plain = [None, "", "007", True, False, 0, -1, 0.5, LARGEST_EXACT_INTEGER, -LARGEST_EXACT_INTEGER]
    assert [format_cell(value) for value in plain] == plain
    assert format_cell({"ž": [1, None]}) == '{"ž":[1,null]}'
    assert format_cell(LARGEST_EXACT_INTEGER + 1) == str(LARGEST_EXACT_INTEGER + 1)
    assert format_cell(-(10**30)) == str(-(10**30))


def test_missing_values_and_other_result_shapes_leave_cells_empty() -> None:
    columns = GridColumns(("a", "result"))
    assert build_row_cells(columns, done({"a": 1}))[:2] == [1, None]
    assert build_row_cells(columns, done([1]))[:2] == [None, "[1]"]
    assert build_row_cells(columns, done(None))[:2] == [None, None]
    assert build_row_cells(columns, {"seq": 0, "status": "done"})[:2] == [None, None]


@pytest.mark.parametrize("status", ["pending", "processing", "retry_wait"])
def test_unsettled_item_shows_no_result_or_error_of_earlier_run(status: str) -> None:
    row = {"seq": 0, "status": status, "result": {"a": 1}, "error": {"code": "x", "reason": "old"}}
    assert build_row_cells(GridColumns(("a",)), row) == [None, 1, status, None, None]
    assert resolve(results=["a"]).build_object(row)["a"] is None


def test_failed_row_shows_error_code_and_reason() -> None:
    row = {"seq": 9, "status": "failed", "result": None, "error": {"code": "x", "reason": "why", "attempt": 3}}
    assert build_row_cells(GridColumns(("a",)), row) == [None, 10, "failed", "x", "why"]


def resolve(wanted: Sequence[str] = (), inputs: Sequence[str] = (), results: Sequence[str] = (), **known: bool) -> Any:
    return resolve_result_file_columns(wanted, KnownFields(tuple(inputs), tuple(results), **known))


META = ("_row", "_status", "_error_code", "_error", "_attempts")


def test_result_file_has_input_columns_then_result_columns_then_states() -> None:
    columns = resolve(inputs=["sku", "b", "a"], results=["price", "stock"])
    assert columns.header == ("sku", "b", "a", "price", "stock", *META)
    row = done({"stock": 3, "price": 1.5}, seq=4) | {"input": {"a": "1", "b": "", "sku": "007"}, "attempts": 2}
    assert columns.build_cells(row) == ["007", "", "1", 1.5, 3, 5, "done", None, None, 2]
    assert list(columns.build_object(row)) == list(columns.header)


def test_result_field_named_like_input_column_gets_a_prefix() -> None:
    columns = resolve(inputs=["price", "result.price", "_status"], results=["price", "_row"])
    assert columns.header == (
        "price",
        "result.price",
        "_status",
        "_result.price",
        "_row",
        "__row",
        "__status",
        "_error_code",
        "_error",
        "_attempts",
    )
    row = done({"price": 2, "_row": "mine"}) | {"input": {"price": "1", "result.price": "odd", "_status": "new"}}
    assert columns.build_cells(row)[:7] == ["1", "odd", "new", 2, "mine", 1, "done"]


@pytest.mark.parametrize(
    ("wanted", "header"),
    [
        (["_status", "b", "price"], ["_status", "b", "price"]),
        (["result.price", "input.a"], ["price", "a"]),
        (["result.*", "a"], ["price", "result.name", "a"]),
        (["name", "result.name"], ["name", "result.name"]),
        (["result.name"], ["result.name"]),
        (["a", "*"], ["a", "b", "name", "price", "result.name", *META]),
        (["input.*"], ["a", "b", "name"]),
        (["price.amount", "result.price.currency"], ["price.amount", "price.currency"]),
    ],
)
def test_wanted_columns_are_selected_in_order(wanted: list[str], header: list[str]) -> None:
    assert list(resolve(wanted, ["a", "b", "name"], ["price", "name"]).header) == header


def test_dotted_column_shows_field_of_nested_object() -> None:
    columns = resolve(["price.amount", "price.tax.rate", "a.b"], ["a"], ["price"])
    row = done({"price": {"amount": 7, "tax": {"rate": [1]}}}) | {"input": {"a": {"b": "x"}, "a.c": 1}}
    assert columns.build_cells(row) == [7, "[1]", "x"]
    assert columns.build_cells(done({"price": 3}) | {"input": {"a.b": "flat"}}) == [None, None, "flat"]
    assert list_nested_fields({"a": 1, "b": {"c": {"d": 1}, "e": []}, "f": {}}) == ["a", "b.c.d", "b.e", "f"]


def test_unknown_or_repeated_wanted_column_is_rejected() -> None:
    with pytest.raises(InvalidInput, match='Unknown column "emial"; did you mean "email"'):
        resolve(["emial"], ["email"], ["price"])
    with pytest.raises(InvalidInput, match=r'Unknown column "zzz"\. Columns: email, price, _row'):
        resolve(["zzz"], ["email"], ["price"])
    with pytest.raises(InvalidInput, match=r'Unknown column "result\.prise"'):
        resolve(["result.prise"], ["email"], ["price"])
    with pytest.raises(InvalidInput, match=r'"input\.email" is listed twice'):
        resolve(["email", "input.email"], ["email"])
    with pytest.raises(InvalidInput, match=r'use "input\.late" or "result\.late"'):
        resolve(["late"], ["email"], are_inputs_final=False)


def test_field_that_only_later_rows_may_have_needs_its_source() -> None:
    known = {"are_inputs_final": False, "are_results_final": False}
    columns = resolve(["input.late", "result.late"], ["email"], [], **known)
    assert columns.header == ("late", "result.late")
    row = done({"late": 2}) | {"input": {"late": 1}}
    assert columns.build_cells(row) == [1, 2]


def test_text_of_a_row_without_columns_is_in_the_first_input_column() -> None:
    row: dict[str, Any] = {"seq": 0, "status": "failed", "error": {"code": "invalid", "reason": "why"}, "input": "x,y"}
    assert resolve(inputs=["a", "b"]).build_cells(row)[:4] == ["x,y", None, 1, "failed"]
    assert resolve(inputs=["a", "input"]).build_cells(row)[:3] == [None, "x,y", 1]


def test_object_of_a_row_also_has_fields_without_a_column_unless_columns_are_chosen() -> None:
    row = done({"a": 1, "_row": "mine", "late": [1]}) | {"input": {"sku": "x", "later": 10**30}}
    made = resolve(inputs=["sku"], results=["a"]).build_object(row)
    assert list(made)[:3] == ["sku", "a", "_row"]
    assert (made["_row"], made["later"], made["late"], made["__row"]) == (1, 10**30, [1], "mine")
    assert resolve(["sku", "a"], ["sku"], ["a"]).build_object(row) == {"sku": "x", "a": 1}
    assert resolve(results=["result"]).build_object(done("text"))["result"] == "text"


@given(value=JSON, given=JSON, status=st.sampled_from(["done", "failed", "pending"]), seq=st.integers(0, 10**12))
def test_cells_of_result_file_match_header_and_object(value: object, given: object, status: str, seq: int) -> None:
    inputs = list(given) if isinstance(given, dict) else ["input"]
    columns = resolve(inputs=inputs, results=list_columns_of_value(value))
    row = {"seq": seq, "status": status, "result": value, "error": {"code": "c", "reason": "r"}, "input": given}
    line, made = columns.build_cells(row), columns.build_object(row)
    assert len(line) == len(columns.header) == len(set(columns.header))
    assert list(made)[: len(line)] == list(columns.header)
    assert [format_cell(made[name]) for name in columns.header] == line
    assert all(each is None or isinstance(each, str | int | float | bool) for each in line)
    json.dumps(made)


@given(value=JSON, status=st.sampled_from(["done", "failed", "pending"]), seq=st.integers(0, 10**12))
def test_row_cells_match_header(value: object, status: str, seq: int) -> None:
    columns = resolve_grid_columns(list_columns_of_value(value), None)
    row = {"seq": seq, "status": status, "result": value, "error": {"code": "c", "reason": "r"}, "input": value}
    line = build_row_cells(columns, row)
    assert len(line) == len(columns.header)
    assert all(each is None or isinstance(each, str | int | float | bool) for each in line)


def test_item_status_without_outcome_is_derived_from_batches() -> None:
    standing = ItemStatusResolver([(0, 10, "leased"), (20, 30, "ready"), (30, 40, "cancelled")], frozenset({15}))
    said = {seq: standing.resolve(seq, None) for seq in (0, 9, 10, 19, 20, 29, 30, 39, 40)}
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
    assert ItemStatusResolver(sparse=True).resolve(3, None) == "done"
    assert [standing.resolve(15, word) for word in ("retry_wait", "pending", "done")] == ["processing"] * 2 + ["done"]
    assert standing.resolve(16, "retry_wait") == "retry_wait"
