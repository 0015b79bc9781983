"""Finding jobs by a part of a key or an id, and by the time they were made."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from tidemill.domain.search import FIRST_ID, LAST_ID, Ids, first_id, id_range, ids_of

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def test_the_beginning_of_an_id_is_a_range() -> None:
    assert id_range("0198-a") == (UUID("0198a" + "0" * 27), UUID("0198a" + "f" * 27))
    assert id_range("J2026") is None
    assert id_range("") is None
    assert id_range("0" * 33) is None
    full = UUID("0198a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")
    assert id_range(str(full).upper()) == (full, full)


def test_a_key_says_the_day() -> None:
    ids = ids_of("j20261116_0000")
    assert ids is not None
    assert ids.prefix == "J20261116_0000"
    assert ids.lo < first_id(NOON) < ids.hi
    assert not ids.lo < first_id(datetime(2026, 11, 15, 23, 59, tzinfo=UTC))
    assert not first_id(datetime(2026, 11, 17, 0, 1, tzinfo=UTC)) < ids.hi


@pytest.mark.parametrize("text", ["J", "J2026", "J99991231", "J20261399_1"])
def test_a_key_that_says_no_day_is_looked_for_everywhere(text: str) -> None:
    assert ids_of(text) == Ids(prefix=text)


@pytest.mark.parametrize("text", ["K1", "J2026-11", "J1_2_3", "job", "%", "' OR 1=1"])
def test_what_can_be_no_key_is_found_nowhere(text: str) -> None:
    assert ids_of(text) is None


def test_bounds_narrow_one_another() -> None:
    ids = Ids().created(NOON, None)
    assert ids.lo < first_id(NOON) < LAST_ID == ids.hi
    assert ids.created(None, datetime(2026, 1, 1, tzinfo=UTC)).is_empty
    assert Ids().before(FIRST_ID).is_empty
    assert Ids().before(UUID(int=1)) == Ids(hi=FIRST_ID)


def test_the_ends_of_time_are_times() -> None:
    first, last = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
    assert FIRST_ID == first_id(first) < first_id(last) < LAST_ID
    assert not Ids().created(first, last).is_empty
    assert Ids().created(last, first).is_empty
