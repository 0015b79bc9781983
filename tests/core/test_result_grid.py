"""Tests of the columns and cells of results."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.result_grid import (
    COLUMN_NAME_MAX_CHARS,
    GRID_COLUMNS_MAX,
    LARGEST_EXACT_INTEGER,
    GridColumns,
    build_row_cells,
    build_row_object,
    format_cell,
    list_columns_of_value,
    resolve_grid_columns,
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
    assert build_row_object(GridColumns(("a",)), row)["a"] is None


def test_failed_row_shows_error_code_and_reason() -> None:
    row = {"seq": 9, "status": "failed", "result": None, "error": {"code": "x", "reason": "why", "attempt": 3}}
    assert build_row_cells(GridColumns(("a",)), row) == [None, 10, "failed", "x", "why"]


def test_row_object_has_columns_then_extra_fields_then_meta_columns() -> None:
    columns = GridColumns(("b", "a"))
    assert list(build_row_object(columns, done({"z": [1], "a": 10**30}))) == ["b", "a", "z", *columns.meta_names]
    assert build_row_object(columns, done({"z": [1], "a": 10**30}))["a"] == 10**30
    assert build_row_object(columns, done("text"))["result"] == "text"
    assert "result" not in build_row_object(columns, done(None))


def test_row_object_keeps_values_named_like_meta_columns() -> None:
    made = build_row_object(GridColumns(("a",)), done({"a": 1, "_row": "mine", "__row": "too"}))
    assert made["_row"] == 1
    assert sorted(str(value) for value in made.values() if value in ("mine", "too")) == ["mine", "too"]


@given(value=JSON, status=st.sampled_from(["done", "failed", "pending"]), seq=st.integers(0, 10**12))
def test_row_cells_match_header_and_row_object(value: object, status: str, seq: int) -> None:
    columns = resolve_grid_columns(list_columns_of_value(value), None)
    row = {"seq": seq, "status": status, "result": value, "error": {"code": "c", "reason": "r"}, "input": value}
    line = build_row_cells(columns, row)
    assert len(line) == len(columns.header)
    assert all(each is None or isinstance(each, str | int | float | bool) for each in line)
    made = build_row_object(columns, row)
    assert list(made)[: len(columns.names)] == list(columns.names)
    assert [format_cell(made[name]) for name in columns.header] == line
    json.dumps(made)


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
