"""Tests that a busy machine claims less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.config import Settings
from tidemill.engine import sizing
from tidemill.engine.sizing import (
    MIN_CLAIM_FACTOR,
    SystemLoadMonitor,
    compute_claim_size_factor,
    compute_claim_time_factor,
)


def test_claim_factors_are_one_below_load_and_memory_limits() -> None:
    assert compute_claim_time_factor(1.0, high=3) == 1
    assert compute_claim_time_factor(2.5, high=3) == 1, "two busy children and their database on two cores"
    assert compute_claim_size_factor(0.85, high=0.85) == 1


def test_claim_time_factor_halves_at_twice_the_load_limit() -> None:
    assert compute_claim_time_factor(6.0, high=3) == pytest.approx(0.5)
    assert compute_claim_time_factor(300.0, high=3) == MIN_CLAIM_FACTOR


def test_claim_size_factor_falls_to_minimum_as_memory_fills() -> None:
    assert compute_claim_size_factor(0.925, high=0.85) == pytest.approx(0.55)
    assert compute_claim_size_factor(1.0, high=0.85) == pytest.approx(MIN_CLAIM_FACTOR)
    assert compute_claim_size_factor(1.2, high=0.85) == MIN_CLAIM_FACTOR, (
        "data that is not resident counts, and may exceed the memory of the machine"
    )


def test_claim_size_factor_with_full_memory_limit_falls_only_above_it() -> None:
    assert compute_claim_size_factor(1.0, high=1.0) == 1
    assert compute_claim_size_factor(1.01, high=1.0) == MIN_CLAIM_FACTOR


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0.01, 20))
def test_claim_time_factor_never_grows_with_load(load: float, more: float, high: float) -> None:
    assert (
        MIN_CLAIM_FACTOR <= compute_claim_time_factor(load + more, high) <= compute_claim_time_factor(load, high) <= 1
    )


@given(st.floats(0, 2), st.floats(0, 2), st.floats(0.01, 1))
def test_claim_size_factor_never_grows_with_memory_use(memory: float, more: float, high: float) -> None:
    assert (
        MIN_CLAIM_FACTOR
        <= compute_claim_size_factor(memory + more, high)
        <= compute_claim_size_factor(memory, high)
        <= 1
    )


@pytest.fixture
def usual(settings: Settings) -> Settings:
    return settings.model_copy(update={"cpu_high_percent": 300, "memory_high_percent": 85})


def test_system_load_is_measured_once_per_interval(usual: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(range(2, 100))
    monkeypatch.setattr(sizing, "read_load_per_core", lambda: 3.0 * next(looks))
    monkeypatch.setattr(sizing, "read_machine_memory_share", lambda: 0.1)
    machine = SystemLoadMonitor(usual)
    assert [machine.get_recent_load().claim_time_factor for _ in range(100)] == [0.5] * 100
    assert next(looks) == 3, "measured once"


def test_claim_size_factor_is_minimal_when_child_exceeds_memory_limit(
    usual: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "read_load_per_core", lambda: 0.1)
    monkeypatch.setattr(sizing, "read_machine_memory_share", lambda: 0.1)
    roomy, tight = (SystemLoadMonitor(usual.model_copy(update={"child_memory_mb": mb})) for mb in (1_000_000, 1))
    assert roomy.get_recent_load().claim_size_factor == 1
    assert tight.get_recent_load().claim_size_factor == MIN_CLAIM_FACTOR
    assert tight.get_recent_load().memory > 1


def test_system_load_and_memory_are_measured() -> None:
    assert sizing.read_load_per_core() >= 0
    assert 0 < sizing.read_machine_memory_share() < 1
