"""Places of pages: they travel through the hands of clients, and come back as anything."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.errors import InvalidInput
from tidemill.domain.page import MAX_NUMBER, Walk, check_limit, check_text, identity, mark_of, moment, number, walk_of

OPEN = Walk("open", (moment, number, number))
JOBS = Walk("jobs", (identity,))
AT = datetime(2026, 11, 16, 12, 30, 0, 123456, tzinfo=UTC)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes().map(str) | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_place_survives_json() -> None:
    place = json.loads(json.dumps(OPEN.place("m", AT, 17, -1)))
    assert OPEN.read(place, "m") == (AT, 17, -1)
    job_id = uuid4()
    assert JOBS.read(json.loads(json.dumps(JOBS.place("m", job_id))), "m") == (job_id,)


def test_a_moment_keeps_its_microseconds_in_any_zone() -> None:
    east = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert OPEN.place("m", east, 1, 2) == OPEN.place("m", AT, 1, 2)


@pytest.mark.parametrize(
    "said",
    [
        None,
        (),
        "open",
        {"open": 1},
        17,
        ("open", "m"),
        ("open", "m", AT.isoformat(), 1),
        ("open", "m", AT.isoformat(), 1, 2, 3),
        ("seq", "m", AT.isoformat(), 1, 2),
        ("open", "other", AT.isoformat(), 1, 2),
        (None, "m", AT.isoformat(), 1, 2),
        (["open"], "m", AT.isoformat(), 1, 2),
        ("open", "m", "yesterday", 1, 2),
        ("open", "m", "", 1, 2),
        ("open", "m", 1.5e9, 1, 2),
        ("open", "m", None, 1, 2),
        ("open", "m", "2026-11-16T12:30:00", 1, 2),
        ("open", "m", "0001-01-01T00:00:00+14:00", 1, 2),
        ("open", "m", "9999-12-31T23:59:59-14:00", 1, 2),
        ("open", "m", "infinity", 1, 2),
        ("open", "m", AT.isoformat() + " " * 100, 1, 2),
        ("open", "m", AT.isoformat(), True, 2),
        ("open", "m", AT.isoformat(), "1", 2),
        ("open", "m", AT.isoformat(), 1.0, 2),
        ("open", "m", AT.isoformat(), float("nan"), 2),
        ("open", "m", AT.isoformat(), -2, 2),
        ("open", "m", AT.isoformat(), MAX_NUMBER + 1, 2),
        ("open", "m", AT.isoformat(), 10**400, 2),
        ("open", "m", AT.isoformat(), 1, [2]),
    ],
)
def test_what_is_no_place_of_this_list_is_refused(said: Any) -> None:
    with pytest.raises(InvalidInput, match="does not belong to this list"):
        OPEN.read(said, "m")


@given(anything)
def test_whatever_comes_is_read_or_refused(said: Any) -> None:
    for place in (said, [said], ["open", "m", said, said, said], ["jobs", "m", said]):
        for walk in (OPEN, JOBS):
            try:
                parts = walk.read(place, "m")
            except InvalidInput:
                continue
            assert all(isinstance(part, datetime | int | UUID) for part in parts)


@given(anything)
def test_a_walk_is_found_by_its_name_only(said: Any) -> None:
    assert walk_of(["open", said], [JOBS, OPEN]) is OPEN
    with pytest.raises(InvalidInput):
        walk_of([["open"], said], [JOBS, OPEN])
    with pytest.raises(InvalidInput):
        walk_of({"open": said}, [JOBS, OPEN])


def test_lists_that_differ_in_a_filter_have_different_marks() -> None:
    marks = {mark_of(1, None), mark_of(1, "a"), mark_of(2, "a"), mark_of("1", "a"), mark_of(1, "a", None)}
    assert len(marks) == 5
    assert mark_of("\ud800")  # half a pair


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_a_page_has_bounds(limit: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 1000 rows"):
        check_limit(limit)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_text_that_no_database_takes_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="a kind has characters that no text has"):
        check_text("a kind", None, "fine", text)
