"""What is wrong with rows, by rule and by row."""

from tidemill.domain.values import Flaw, Flaws, Problem


def found() -> Flaws:
    flaws = Flaws()
    flaws.add_all(Flaw("email", "pattern", "not an address", {0: "x", 2: "y"}))
    flaws.add(2, Problem("name", "required", "must not be empty"))
    flaws.add(3, Problem("name", "required", "must not be empty"))
    flaws.add(2, Problem(None, "shape", "not an object", "[]"))
    return flaws


def test_a_row_tells_its_first_flaw_and_all_of_them_if_there_are_more() -> None:
    first = {"code": "email.pattern", "reason": "not an address", "field": "email", "value": "y"}
    second = {"code": "name.required", "reason": "must not be empty", "field": "name"}
    third = {"code": "shape", "reason": "not an object", "value": "[]"}
    told = found().told()
    assert told[0] == first | {"value": "x"}
    assert told[2] == first | {"errors": [first, second, third]}
    assert told[3] == second
    assert set(told) == found().rows == {0, 2, 3}


def test_no_row_has_more_errors_than_are_kept() -> None:
    flaws = Flaws()
    for number in range(80):
        flaws.add(0, Problem(f"f{number}", "type", "wrong"))
    assert [one["field"] for one in flaws.told()[0]["errors"]] == [f"f{number}" for number in range(50)]


def test_flaws_are_found_by_field_and_by_row_and_taken_over_but_for_some_rows() -> None:
    flaws = found()
    assert (flaws.of_field("name"), flaws.of_field("other")) == ({2, 3}, set())
    assert [flaw.name for flaw in flaws.of_rows([2, 9])[2]] == ["email.pattern", "name.required", "shape"]
    assert flaws.of_rows([9]) == {9: []}
    others = Flaws()
    others.take(flaws, but={2})
    assert others.rows == {0, 3}
