"""Search for jobs by key or id prefix, and by creation time."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from tidemill.core.job_id_range import (
    JOB_ID_MAX,
    JOB_ID_MIN,
    JobIdRange,
    compute_min_id_at,
    parse_id_prefix_to_bounds,
    parse_job_prefix,
)

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_job_id_prefix_is_parsed_as_id_range() -> None:
    assert parse_id_prefix_to_bounds("0198-a") == (UUID("0198a" + "0" * 27), UUID("0198a" + "f" * 27))
    assert parse_id_prefix_to_bounds("J2026") is None
    assert parse_id_prefix_to_bounds("") is None
    assert parse_id_prefix_to_bounds("0" * 33) is None
    full = UUID("0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")
    assert parse_id_prefix_to_bounds(str(full).upper()) == (full, full)


def test_job_key_prefix_with_date_is_parsed_as_id_range_of_that_day() -> None:
    ids = parse_job_prefix("j20261116_0000")
    assert ids is not None
    assert ids.prefix == "J20261116_0000"
    assert ids.lo < compute_min_id_at(NOON) < ids.hi
    assert not ids.lo < compute_min_id_at(datetime(2026, 11, 15, 23, 59, tzinfo=UTC))
    assert not compute_min_id_at(datetime(2026, 11, 17, 0, 1, tzinfo=UTC)) < ids.hi


@pytest.mark.parametrize("text", ["J", "J2026", "J99991231", "J20261399_1"])
def test_job_key_prefix_without_valid_date_searches_all_ids(text: str) -> None:
    assert parse_job_prefix(text) == JobIdRange(prefix=text)


@pytest.mark.parametrize("text", ["K1", "J2026-11", "J1_2_3", "job", "%", "' OR 1=1"])
def test_text_that_is_no_job_key_matches_nothing(text: str) -> None:
    assert parse_job_prefix(text) is None


def test_job_id_range_bounds_are_intersected() -> None:
    ids = JobIdRange().limit_to_created(NOON, None)
    assert ids.lo < compute_min_id_at(NOON) < JOB_ID_MAX == ids.hi
    assert ids.limit_to_created(None, datetime(2026, 1, 1, tzinfo=UTC)).is_empty
    assert JobIdRange().limit_to_before(JOB_ID_MIN).is_empty
    assert JobIdRange().limit_to_before(UUID(int=1)) == JobIdRange(hi=JOB_ID_MIN)


def test_job_id_range_accepts_minimum_and_maximum_datetime() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert JOB_ID_MIN == compute_min_id_at(first) < compute_min_id_at(last) < JOB_ID_MAX
    assert not JobIdRange().limit_to_created(first, last).is_empty
    assert JobIdRange().limit_to_created(last, first).is_empty
