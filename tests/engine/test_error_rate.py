"""Tests of the error rate and of spikes."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.concurrency import MAX_BACKOFF_FACTOR, ErrorRate


def after(*windows: tuple[int, int]) -> ErrorRate:
    """Return the error rate after windows of (failed, attempts)."""
    rate = ErrorRate()
    for failed, tried in windows:
        rate = rate.with_attempts(failed=failed, attempts=tried)
    return rate


def test_error_rate_with_few_attempts_is_no_spike() -> None:
    assert not after((2, 2)).is_spike
    assert after((2, 2)).backoff_factor == 1
    assert not after((0, 100), (4, 4)).is_spike


def test_error_rate_rise_is_spike_until_it_becomes_usual() -> None:
    calm = [(0, 100)] * 20
    assert after(*calm, (60, 100), (60, 100)).is_spike
    assert not after(*calm, *[(60, 100)] * 30).is_spike, "by then the rate is usual for the kind"


def test_constant_error_rate_is_no_spike() -> None:
    for n in range(1, 50):
        assert not after(*[(35, 100)] * n).is_spike


def test_backoff_factor_grows_with_error_rate() -> None:
    spacings = [after(*[(failed, 100)] * 20).backoff_factor for failed in (0, 10, 30, 60, 100)]
    assert spacings == sorted(spacings)
    assert spacings[:2] == [1, 1]
    assert 3.5 < spacings[-1] < MAX_BACKOFF_FACTOR


def test_error_rate_is_unchanged_by_window_without_attempts() -> None:
    rate = after((1, 10))
    assert rate.with_attempts(failed=0, attempts=0) is rate


def test_error_rate_recovers_after_successful_windows() -> None:
    rate = after(*[(0, 100)] * 5, *[(90, 100)] * 5, *[(0, 100)] * 10)
    assert rate.share < 0.05
    assert rate.backoff_factor == 1


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=40), st.integers(0, 500))
def test_error_rate_and_backoff_factor_stay_within_bounds(seen: list[tuple[int, int]], failed: int) -> None:
    rate = after(*[(min(failed, tried), tried) for failed, tried in seen])
    assert 0 <= rate.share < 1
    assert 1 <= rate.backoff_factor <= MAX_BACKOFF_FACTOR
    better, worse = (rate.with_attempts(failed=n, attempts=501) for n in (failed, failed + 1))
    assert worse.share > better.share
    assert worse.backoff_factor >= better.backoff_factor
