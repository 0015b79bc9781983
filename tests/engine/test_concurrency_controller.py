"""Simulations of adaptive concurrency: a provider with a rate limit, a changing one, and a failing one.

The simulation (benchmarks/simulated_provider.py) uses simulated time with the real controller and semaphore.
"""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated_provider import Second, simulate
from tidemill.engine.concurrency import (
    MAX_SLOT_COOLDOWN_S,
    MAX_START_GAP_S,
    STRONGEST_CUT_FACTOR,
    ConcurrencyController,
    ObservationWindow,
)

SETTLING_S = 20


def refused(seconds: Sequence[Second]) -> float:
    """Return the share of throttled requests."""
    throttled = sum(second.throttled for second in seconds)
    return throttled / (throttled + sum(second.done for second in seconds))


def used(seconds: Sequence[Second], rate: float) -> float:
    """Return the used share of the provider's capacity."""
    return sum(second.done for second in seconds) / (rate * len(seconds))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("retry_after_s", [None, 1.0], ids=["a bare 429", "with Retry-After"])
@pytest.mark.parametrize(("rate", "latency_s"), [(100, 0.05), (100, 0.2), (20, 0.5), (50, 0.3), (1_000, 0.02)])
def test_concurrency_settles_at_provider_rate_limit(
    rate: float, latency_s: float, retry_after_s: float | None, seed: int
) -> None:
    simulation = simulate(rate, latency_s, retry_after_s=retry_after_s, seed=seed)
    simulation.run(SETTLING_S)
    settled = simulation.run(60)
    sustainable = rate * latency_s
    assert all(0.75 * sustainable < second.level < 1.25 * sustainable for second in settled)
    assert refused(settled) < 0.02
    assert used(settled, rate) > 0.9


@pytest.mark.parametrize(("rate", "latency_s"), [(10, 0.02), (5, 0.05), (2, 1.0)])
def test_concurrency_below_one_is_paced_with_start_gaps(rate: float, latency_s: float) -> None:
    """A provider without a burst: of two requests that are slightly too close, it throttles the second."""
    simulation = simulate(rate, latency_s)
    simulation.run(60)
    settled = simulation.run(200)
    assert refused(settled) < 0.1
    assert used(settled, rate) > 0.6
    assert max(second.level for second in settled) < 1.4 * rate * latency_s


def test_concurrency_ends_throttle_storm_within_seconds() -> None:
    seconds = simulate(100, 0.05).run(10)
    assert seconds[0].throttled > 20, "fifty at once were too many"
    assert sum(second.throttled for second in seconds[5:]) < 25
    assert sum(second.throttled for second in seconds) < 250


def test_concurrency_uses_raised_provider_rate_within_15_s() -> None:
    simulation = simulate(100, 0.05)
    simulation.run(30)
    simulation.provider.rate = 400
    simulation.run(15)
    settled = simulation.run(60)
    assert used(settled, 400) > 0.9
    assert refused(settled) < 0.02


def test_concurrency_returns_to_maximum_when_rate_limit_is_lifted() -> None:
    simulation = simulate(100, 0.05)
    simulation.run(30)
    simulation.provider.rate = 1e6
    assert simulation.run(40)[-1].level == 50


def test_concurrency_follows_lowered_provider_rate_within_3_s() -> None:
    simulation = simulate(400, 0.05)
    simulation.run(30)
    simulation.provider.rate = 50
    simulation.run(3)
    settled = simulation.run(60)
    assert all(0.75 * 2.5 < second.level < 1.25 * 2.5 for second in settled)
    assert refused(settled) < 0.02


def test_concurrency_of_independent_processes_shares_provider_fairly() -> None:
    simulation = simulate(100, 0.2, crews=3)
    simulation.run(60)
    settled = simulation.run(200)
    assert all(0.7 * 20 < second.level < 1.3 * 20 for second in settled)
    assert refused(settled) < 0.02
    shares = [sum(second.levels[crew] for second in settled) / len(settled) for crew in range(3)]
    assert min(shares) > 0.5 * max(shares), "no process starves"


def test_error_spike_cuts_concurrency_and_widens_backoff() -> None:
    simulation = simulate(1e6, 0.05)
    simulation.run(10)
    simulation.provider.failing = 0.8
    outage = simulation.run(10)
    simulation.provider.failing = 0.0
    after = simulation.run(40)
    assert [second.level for second in outage] == sorted((second.level for second in outage), reverse=True)
    assert outage[-1].level < 5
    assert max(second.spacing for second in outage) > 2
    assert after[-1].level == 50
    assert after[-1].spacing == 1


def test_constant_error_rate_keeps_concurrency() -> None:
    simulation = simulate(1e6, 0.05)
    simulation.provider.failing = 0.35
    assert all(second.level == 50 for second in simulation.run(60))


windows = st.builds(
    ObservationWindow,
    st.floats(0.1, 100),
    settled=st.integers(0, 5_000),
    settled_s=st.floats(0, 1e4),
    throttled=st.integers(0, 500),
    failed=st.integers(0, 500),
)


@given(st.integers(1, 1_000), st.lists(windows, max_size=60))
def test_concurrency_stays_within_bounds_for_any_windows(high: int, seen: list[ObservationWindow]) -> None:
    control = ConcurrencyController.start_at_maximum(high)
    for window in seen:
        before, control = control, control.adjust_to_window(window)
        assert 0 < control.level <= high
        assert 1 <= control.slots <= high
        assert 0 <= control.start_gap_s <= MAX_START_GAP_S
        assert 0 <= control.slot_cooldown_s(None) <= control.slot_cooldown_s(1e9) <= MAX_SLOT_COOLDOWN_S
        assert control.level >= min(before.level, control.min_level, STRONGEST_CUT_FACTOR * before.level)
        if window.throttled:
            assert control.level <= max(before.level, control.min_level), "throttling never raises the level"
        elif not window.settled:
            assert control.level <= before.level, "an empty window never raises the level"


@given(st.floats(1, 1_000), windows, st.integers(1, 100))
def test_more_throttled_requests_never_raise_concurrency(level: float, window: ObservationWindow, more: int) -> None:
    control = ConcurrencyController(1_000, level, level)
    worse = ObservationWindow(window.seconds, window.settled, window.settled_s, window.throttled + more, window.failed)
    assert (
        control.adjust_to_window(worse).level <= max(control.adjust_to_window(window).level, control.min_level) + 1e-9
    )


def test_calm_windows_raise_concurrency_evenly_then_faster() -> None:
    calm = ObservationWindow(1.0, settled=100, settled_s=5.0)
    control = ConcurrencyController.start_at_maximum(50).adjust_to_window(
        ObservationWindow(1.0, settled=100, settled_s=30.0, throttled=20)
    )
    assert control.reason == "throttled"
    levels = [control.level]
    for _ in range(12):
        control = control.adjust_to_window(calm)
        levels.append(control.level)
    steps = [after - before for before, after in itertools.pairwise(levels)]
    assert steps[:8] == pytest.approx([steps[0]] * 8)
    assert levels[8] == pytest.approx(50)
    low = ConcurrencyController(50, 9.0, 10.0, step=0.125)
    steps = []
    for _ in range(16):
        before, low = low, low.adjust_to_window(calm)
        steps.append(low.level - before.level)
    assert steps[:8] == pytest.approx([0.125] * 8)
    assert steps[8:] == sorted(steps[8:])
    assert steps[-1] > 8 * steps[0]


def test_sparse_window_is_not_complete_after_one_throttled_request() -> None:
    control = ConcurrencyController(50, 5, 5)
    assert not control.is_window_complete(ObservationWindow(1.0, settled=1, settled_s=0.1, throttled=1))
    assert control.is_window_complete(ObservationWindow(5.0, settled=1, settled_s=0.1, throttled=1))
    assert control.is_window_complete(ObservationWindow(1.0, settled=9, settled_s=0.9, throttled=1))


def test_throttle_storm_window_is_complete_early() -> None:
    control = ConcurrencyController(50, 50, 50, round_trip_s=0.2)
    assert not control.is_window_complete(ObservationWindow(0.1, settled=5, settled_s=0.9, throttled=40))
    assert control.is_window_complete(ObservationWindow(0.3, settled=5, settled_s=0.9, throttled=40))


def test_window_of_slow_calls_is_complete_after_30_s_with_few_responses() -> None:
    """Otherwise a kind whose calls were slow once would stay paced for minutes."""
    slow = ConcurrencyController(2, 1.0, 2.0, round_trip_s=600.0)
    assert not slow.is_window_complete(ObservationWindow(29.0, settled=2))
    assert slow.is_window_complete(ObservationWindow(30.0, settled=2))
