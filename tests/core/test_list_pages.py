"""Tests of cursors: clients may send back anything."""

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import (
    BIGINT_SAFE_MAX,
    ListOrder,
    check_page_limit,
    check_storable_text,
    find_order_of_position,
    fingerprint_filters,
    parse_cursor_timestamp,
    parse_cursor_uuid,
    parse_number,
)

OPEN = ListOrder("open", (parse_cursor_timestamp, parse_number, parse_number))
JOBS = ListOrder("jobs", (parse_cursor_uuid,))
AT = datetime(2026, 11, 16, 12, 30, 0, 123456, tzinfo=UTC)

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes().map(str) | st.uuids().map(str),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_cursor_survives_json_round_trip() -> None:
    place = json.loads(json.dumps(OPEN.build_position("m", AT, 17, -1)))
    assert OPEN.parse_position(place, "m") == (AT, 17, -1)
    job_id = uuid4()
    assert JOBS.parse_position(json.loads(json.dumps(JOBS.build_position("m", job_id))), "m") == (job_id,)


def test_cursor_timestamp_keeps_microseconds_in_any_time_zone() -> None:
    east = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert OPEN.build_position("m", east, 1, 2) == OPEN.build_position("m", AT, 1, 2)


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
        ("open", "m", AT.isoformat(), BIGINT_SAFE_MAX + 1, 2),
        ("open", "m", AT.isoformat(), 10**400, 2),
        ("open", "m", AT.isoformat(), 1, [2]),
    ],
)
def test_cursor_of_another_list_or_shape_is_rejected(said: Any) -> None:
    with pytest.raises(InvalidInput, match="does not belong to this list"):
        OPEN.parse_position(said, "m")


@given(anything)
def test_arbitrary_cursor_is_parsed_or_rejected(said: Any) -> None:
    for place in (said, [said], ["open", "m", said, said, said], ["jobs", "m", said]):
        for walk in (OPEN, JOBS):
            try:
                parts = walk.parse_position(place, "m")
            except InvalidInput:
                continue
            assert all(isinstance(part, datetime | int | UUID) for part in parts)


@given(anything)
def test_cursor_format_is_found_by_name_only(said: Any) -> None:
    assert find_order_of_position(["open", said], [JOBS, OPEN]) is OPEN
    with pytest.raises(InvalidInput):
        find_order_of_position([["open"], said], [JOBS, OPEN])
    with pytest.raises(InvalidInput):
        find_order_of_position({"open": said}, [JOBS, OPEN])


def test_filter_fingerprints_differ_when_filters_differ() -> None:
    marks = {
        fingerprint_filters(1, None),
        fingerprint_filters(1, "a"),
        fingerprint_filters(2, "a"),
        fingerprint_filters("1", "a"),
        fingerprint_filters(1, "a", None),
    }
    assert len(marks) == 5
    assert fingerprint_filters("\ud800")  # an unpaired surrogate


@pytest.mark.parametrize("limit", [0, -1, 1_001])
def test_page_limit_out_of_bounds_is_rejected(limit: int) -> None:
    with pytest.raises(InvalidInput, match="1 to 1000 rows"):
        check_page_limit(limit)


@pytest.mark.parametrize("text", ["a\x00b", "\ud800"])
def test_filter_text_with_nul_or_surrogate_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="a kind contains a NUL character"):
        check_storable_text("a kind", None, "fine", text)
