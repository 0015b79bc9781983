"""The share of attempts that fail, and whether that is unusual."""

from hypothesis import given
from hypothesis import strategies as st

from tidemill.engine.adapt.errors import WIDEST, ErrorRate


def after(*windows: tuple[int, int]) -> ErrorRate:
    """Windows of (failed, tried)."""
    rate = ErrorRate()
    for failed, tried in windows:
        rate = rate.observe(failed=failed, tried=tried)
    return rate


def test_a_few_failures_of_few_attempts_are_no_spike() -> None:
    assert not after((2, 2)).is_spike
    assert after((2, 2)).spacing == 1
    assert not after((0, 100), (4, 4)).is_spike


def test_a_rise_is_a_spike_until_it_is_usual() -> None:
    calm = [(0, 100)] * 20
    assert after(*calm, (60, 100), (60, 100)).is_spike
    assert not after(*calm, *[(60, 100)] * 30).is_spike, "by then it is how this kind is"


def test_a_kind_that_always_fails_to_a_third_is_left_alone() -> None:
    for n in range(1, 50):
        assert not after(*[(35, 100)] * n).is_spike


def test_the_more_fail_the_longer_retries_wait() -> None:
    spacings = [after(*[(failed, 100)] * 20).spacing for failed in (0, 10, 30, 60, 100)]
    assert spacings == sorted(spacings)
    assert spacings[:2] == [1, 1]
    assert 3.5 < spacings[-1] < WIDEST


def test_a_window_without_attempts_says_nothing() -> None:
    rate = after((1, 10))
    assert rate.observe(failed=0, tried=0) is rate


def test_what_was_wrong_is_forgotten_when_it_goes_well() -> None:
    rate = after(*[(0, 100)] * 5, *[(90, 100)] * 5, *[(0, 100)] * 10)
    assert rate.share < 0.05
    assert rate.spacing == 1


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=40), st.integers(0, 500))
def test_shares_and_spacings_stay_within_their_bounds(seen: list[tuple[int, int]], failed: int) -> None:
    rate = after(*[(min(failed, tried), tried) for failed, tried in seen])
    assert 0 <= rate.share < 1
    assert 1 <= rate.spacing <= WIDEST
    better, worse = (rate.observe(failed=n, tried=501) for n in (failed, failed + 1))
    assert worse.share > better.share
    assert worse.spacing >= better.spacing
