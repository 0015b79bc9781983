"""Concurrency, simulated: a provider with a rate limit, one that gets faster or slower, one that fails.

The simulation (benchmarks/simulated_provider.py) has no real time; the controller and its crew are the real ones.
"""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulated_provider import Second, simulate
from tidemill.engine.adapt.concurrency import HARDEST, LONGEST_GAP_S, LONGEST_REST_S, Concurrency, Window

SETTLING_S = 20


def refused(seconds: Sequence[Second]) -> float:
    """The share of requests that were refused."""
    throttled = sum(second.throttled for second in seconds)
    return throttled / (throttled + sum(second.done for second in seconds))


def used(seconds: Sequence[Second], rate: float) -> float:
    """The part of what the provider would have taken."""
    return sum(second.done for second in seconds) / (rate * len(seconds))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("retry_after_s", [None, 1.0], ids=["a bare 429", "with Retry-After"])
@pytest.mark.parametrize(("rate", "latency_s"), [(100, 0.05), (100, 0.2), (20, 0.5), (50, 0.3), (1_000, 0.02)])
def test_concurrency_settles_at_what_the_provider_takes(
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
def test_a_provider_that_takes_less_than_one_at_a_time_is_met_by_gaps(rate: float, latency_s: float) -> None:
    """It has no burst at all: two requests that are a little too close, and the second is refused."""
    simulation = simulate(rate, latency_s)
    simulation.run(60)
    settled = simulation.run(200)
    assert refused(settled) < 0.1
    assert used(settled, rate) > 0.6
    assert max(second.level for second in settled) < 1.4 * rate * latency_s


def test_a_storm_of_refusals_is_over_in_seconds() -> None:
    seconds = simulate(100, 0.05).run(10)
    assert seconds[0].throttled > 20, "fifty at once were too many"
    assert sum(second.throttled for second in seconds[5:]) < 25
    assert sum(second.throttled for second in seconds) < 250


def test_a_provider_that_gets_faster_is_used_within_a_quarter_of_a_minute() -> None:
    simulation = simulate(100, 0.05)
    simulation.run(30)
    simulation.provider.rate = 400
    simulation.run(15)
    settled = simulation.run(60)
    assert used(settled, 400) > 0.9
    assert refused(settled) < 0.02


def test_a_provider_without_a_limit_any_more_is_used_fully_again() -> None:
    simulation = simulate(100, 0.05)
    simulation.run(30)
    simulation.provider.rate = 1e6
    assert simulation.run(40)[-1].level == 50


def test_a_provider_that_gets_slower_is_followed_at_once() -> None:
    simulation = simulate(400, 0.05)
    simulation.run(30)
    simulation.provider.rate = 50
    simulation.run(3)
    settled = simulation.run(60)
    assert all(0.75 * 2.5 < second.level < 1.25 * 2.5 for second in settled)
    assert refused(settled) < 0.02


def test_processes_that_know_nothing_of_each_other_share_the_provider() -> None:
    simulation = simulate(100, 0.2, crews=3)
    simulation.run(60)
    settled = simulation.run(200)
    assert all(0.7 * 20 < second.level < 1.3 * 20 for second in settled)
    assert refused(settled) < 0.02
    shares = [sum(second.levels[crew] for second in settled) / len(settled) for crew in range(3)]
    assert min(shares) > 0.5 * max(shares), "nobody starves"


def test_a_spike_of_errors_shrinks_for_a_while_and_widens_the_backoff() -> None:
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


def test_a_kind_of_which_a_third_always_fails_keeps_its_concurrency() -> None:
    simulation = simulate(1e6, 0.05)
    simulation.provider.failing = 0.35
    assert all(second.level == 50 for second in simulation.run(60))


windows = st.builds(
    Window,
    st.floats(0.1, 100),
    settled=st.integers(0, 5_000),
    settled_s=st.floats(0, 1e4),
    throttled=st.integers(0, 500),
    failed=st.integers(0, 500),
)


@given(st.integers(1, 1_000), st.lists(windows, max_size=60))
def test_whatever_comes_back_the_bounds_hold(high: int, seen: list[Window]) -> None:
    control = Concurrency.start(high)
    for window in seen:
        before, control = control, control.observe(window)
        assert 0 < control.level <= high
        assert 1 <= control.places <= high
        assert 0 <= control.gap_s <= LONGEST_GAP_S
        assert 0 <= control.rest_s(None) <= control.rest_s(1e9) <= LONGEST_REST_S
        assert control.level >= min(before.level, control.low, HARDEST * before.level)
        if window.throttled:
            assert control.level <= max(before.level, control.low), "a refusal never widens"
        elif not window.settled:
            assert control.level <= before.level, "nor does silence"


@given(st.floats(1, 1_000), windows, st.integers(1, 100))
def test_more_refusals_never_leave_more(level: float, window: Window, more: int) -> None:
    control = Concurrency(1_000, level, level)
    worse = Window(window.seconds, window.settled, window.settled_s, window.throttled + more, window.failed)
    assert control.observe(worse).level <= max(control.observe(window).level, control.low) + 1e-9


def test_calm_windows_climb_in_even_steps_to_where_it_was_refused_and_faster_beyond() -> None:
    calm = Window(1.0, settled=100, settled_s=5.0)
    control = Concurrency.start(50).observe(Window(1.0, settled=100, settled_s=30.0, throttled=20))
    assert control.reason == "throttled"
    levels = [control.level]
    for _ in range(12):
        control = control.observe(calm)
        levels.append(control.level)
    steps = [after - before for before, after in itertools.pairwise(levels)]
    assert steps[:8] == pytest.approx([steps[0]] * 8)
    assert levels[8] == pytest.approx(50)
    low = Concurrency(50, 9.0, 10.0, step=0.125)
    steps = []
    for _ in range(16):
        before, low = low, low.observe(calm)
        steps.append(low.level - before.level)
    assert steps[:8] == pytest.approx([0.125] * 8)
    assert steps[8:] == sorted(steps[8:])
    assert steps[-1] > 8 * steps[0]


def test_one_refusal_of_two_answers_is_waited_on() -> None:
    control = Concurrency(50, 5, 5)
    assert not control.is_over(Window(1.0, settled=1, settled_s=0.1, throttled=1))
    assert control.is_over(Window(5.0, settled=1, settled_s=0.1, throttled=1))
    assert control.is_over(Window(1.0, settled=9, settled_s=0.9, throttled=1))


def test_a_storm_is_not() -> None:
    control = Concurrency(50, 50, 50, trip_s=0.2)
    assert not control.is_over(Window(0.1, settled=5, settled_s=0.9, throttled=40))
    assert control.is_over(Window(0.3, settled=5, settled_s=0.9, throttled=40))
