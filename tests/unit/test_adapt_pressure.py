"""A strained machine takes less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.config import Settings
from tidemill.engine import strain
from tidemill.engine.adapt.pressure import LEAST, pressure
from tidemill.engine.strain import Machine

fraction = st.floats(0, 1)


def at(cpu: float, memory: float, cpu_high: float = 3.0, memory_high: float = 0.85) -> float:
    return pressure(cpu, memory, cpu_high=cpu_high, memory_high=memory_high)


def test_a_machine_that_is_merely_busy_takes_everything() -> None:
    assert at(cpu=1.0, memory=0.5) == 1
    assert at(cpu=2.5, memory=0.8) == 1, "two busy children and their database on two cores"


def test_twice_the_load_takes_half() -> None:
    assert at(cpu=6.0, memory=0.5) == pytest.approx(0.5)
    assert at(cpu=300.0, memory=0.5) == LEAST


def test_the_last_memory_is_not_taken() -> None:
    assert at(cpu=0, memory=0.85) == 1
    assert at(cpu=0, memory=0.925) == pytest.approx(0.55)
    assert at(cpu=0, memory=1.0) == pytest.approx(LEAST)
    assert at(cpu=0, memory=1.2) == LEAST, "data that is not resident counts, and may be more than there is"


def test_a_bound_of_all_memory_leaves_only_the_very_end() -> None:
    assert at(cpu=0, memory=0.99, memory_high=1.0) == 1
    assert at(cpu=0, memory=1.0, memory_high=1.0) == 1
    assert at(cpu=0, memory=1.01, memory_high=1.0) == LEAST


@given(st.floats(0, 1e3), st.floats(0, 2), st.floats(0, 1e3), st.floats(0, 2), st.floats(0.1, 20), st.floats(0.01, 1))
def test_more_strain_never_takes_more(
    cpu: float, memory: float, more_cpu: float, more_memory: float, cpu_high: float, memory_high: float
) -> None:
    here = at(cpu, memory, cpu_high, memory_high)
    beyond = at(cpu + more_cpu, memory + more_memory, cpu_high, memory_high)
    assert LEAST <= beyond <= here <= 1


@pytest.fixture
def usual(settings: Settings) -> Settings:
    return settings.model_copy(update={"cpu_high_percent": 300, "memory_high_percent": 85})


def test_the_machine_is_looked_at_once_a_second(usual: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(2, 100))
    monkeypatch.setattr(strain, "load_per_core", lambda: 3.0 * next(looks))
    monkeypatch.setattr(strain, "of_machine", lambda: 0.1)
    machine = Machine(usual)
    assert [machine.strain().factor for _ in range(100)] == [0.5] * 100
    assert next(looks) == 3, "looked at once"


def test_a_child_near_its_own_limit_takes_less(usual: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strain, "load_per_core", lambda: 0.1)
    monkeypatch.setattr(strain, "of_machine", lambda: 0.1)
    roomy, tight = Machine(usual), Machine(usual.model_copy(update={"child_memory_mb": 1}))
    assert roomy.strain().factor == 1
    assert tight.strain().factor == LEAST
    assert tight.strain().memory > 1


def test_load_and_memory_are_measured() -> None:
    assert strain.load_per_core() >= 0
    assert 0 < strain.of_machine() < 1
