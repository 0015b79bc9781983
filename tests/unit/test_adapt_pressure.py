"""A strained machine takes less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.config import Settings
from tidemill.engine import strain
from tidemill.engine.adapt.pressure import LEAST, spare_room, spare_time
from tidemill.engine.strain import Machine


def test_a_machine_that_is_merely_busy_takes_everything() -> None:
    assert spare_time(1.0, high=3) == 1
    assert spare_time(2.5, high=3) == 1, "two busy children and their database on two cores"
    assert spare_room(0.85, high=0.85) == 1


def test_twice_the_load_takes_half() -> None:
    assert spare_time(6.0, high=3) == pytest.approx(0.5)
    assert spare_time(300.0, high=3) == LEAST


def test_the_last_memory_is_not_taken() -> None:
    assert spare_room(0.925, high=0.85) == pytest.approx(0.55)
    assert spare_room(1.0, high=0.85) == pytest.approx(LEAST)
    assert spare_room(1.2, high=0.85) == LEAST, "data that is not resident counts, and may be more than there is"


def test_a_bound_of_all_memory_leaves_only_the_very_end() -> None:
    assert spare_room(1.0, high=1.0) == 1
    assert spare_room(1.01, high=1.0) == LEAST


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0.01, 20))
def test_more_load_never_takes_more(load: float, more: float, high: float) -> None:
    assert LEAST <= spare_time(load + more, high) <= spare_time(load, high) <= 1


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0.01, 1))
def test_less_memory_never_takes_more(memory: float, more: float, high: float) -> None:
    assert LEAST <= spare_room(memory + more, high) <= spare_room(memory, high) <= 1


@pytest.fixture
def usual(settings: Settings) -> Settings:
    return settings.model_copy(update={"cpu_high_percent": 300, "memory_high_percent": 85})


def test_the_machine_is_looked_at_once_a_second(usual: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(2, 100))
    monkeypatch.setattr(strain, "load_per_core", lambda: 3.0 * next(looks))
    monkeypatch.setattr(strain, "of_machine", lambda: 0.1)
    machine = Machine(usual)
    assert [machine.strain().time for _ in range(100)] == [0.5] * 100
    assert next(looks) == 3, "looked at once"


def test_a_child_near_its_own_limit_takes_less(usual: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strain, "load_per_core", lambda: 0.1)
    monkeypatch.setattr(strain, "of_machine", lambda: 0.1)
    roomy, tight = (Machine(usual.model_copy(update={"child_memory_mb": mb})) for mb in (1_000_000, 1))
    assert roomy.strain().room == 1
    assert tight.strain().room == LEAST
    assert tight.strain().memory > 1


def test_load_and_memory_are_measured() -> None:
    assert strain.load_per_core() >= 0
    assert 0 < strain.of_machine() < 1
