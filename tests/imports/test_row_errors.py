"""Errors of rows, by rule and by row."""

from tidemill.imports.validation.row_errors import RowErrorDetail, RowErrorGroup, RowErrors


def found() -> RowErrors:
    flaws = RowErrors()
    flaws.add_group(RowErrorGroup("email", "pattern", "not an address", {0: "x", 2: "y"}))
    flaws.add(2, RowErrorDetail("name", "required", "must not be empty"))
    flaws.add(3, RowErrorDetail("name", "required", "must not be empty"))
    flaws.add(2, RowErrorDetail(None, "shape", "not an object", "[]"))
    return flaws


def test_row_error_details_show_first_error_and_list_all() -> None:
    first = {"code": "email.pattern", "reason": "not an address", "field": "email", "value": "y"}
    second = {"code": "name.required", "reason": "must not be empty", "field": "name"}
    third = {"code": "shape", "reason": "not an object", "value": "[]"}
    told = found().build_details_by_row()
    assert told[0] == first | {"value": "x"}
    assert told[2] == first | {"errors": [first, second, third]}
    assert told[3] == second
    assert set(told) == found().bad_rows == {0, 2, 3}


def test_row_error_details_are_limited_to_50_errors() -> None:
    flaws = RowErrors()
    for number in range(80):
        flaws.add(0, RowErrorDetail(f"f{number}", "type", "wrong"))
    assert [one["field"] for one in flaws.build_details_by_row()[0]["errors"]] == [f"f{number}" for number in range(50)]


def test_row_errors_are_grouped_by_field_and_row_and_merged_with_exclusions() -> None:
    flaws = found()
    assert (flaws.find_rows_with_error_in_field("name"), flaws.find_rows_with_error_in_field("other")) == (
        {2, 3},
        set(),
    )
    assert [flaw.qualified_code for flaw in flaws.group_by_row([2, 9])[2]] == [
        "email.pattern",
        "name.required",
        "shape",
    ]
    assert flaws.group_by_row([9]) == {9: []}
    others = RowErrors()
    others.merge(flaws, except_rows={2})
    assert others.bad_rows == {0, 3}
