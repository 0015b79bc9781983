"""Whom the death of a child process charges, and when a child must be killed."""

from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.domain.crash import STUCK_GRACE_S, Cause, cause_of_death, is_alone, is_stuck


def death(returncode: int, by_parent: Cause | None = None, *, in_hand: int = 0, peak_mb: float = 50) -> Cause:
    return cause_of_death(
        returncode=returncode, by_parent=by_parent, in_hand=in_hand, peak_rss_mb=peak_mb, limit_mb=100
    )


@pytest.mark.parametrize(
    ("returncode", "by_parent", "peak_mb", "cause"),
    [
        (0, None, 50, Cause.STOPPED),
        (1, None, 50, Cause.CRASHED),
        (78, None, 50, Cause.CRASHED),
        (-SIGSEGV, None, 50, Cause.CRASHED),
        (-SIGABRT, None, 50, Cause.CRASHED),
        (-SIGTERM, None, 50, Cause.KILLED),
        (-SIGKILL, None, 50, Cause.KILLED),
        (-SIGKILL, None, 79.9, Cause.KILLED),
        (-SIGKILL, None, 80, Cause.CRASHED),  # the kernel's OOM killer
        (-SIGKILL, Cause.STUCK, 50, Cause.STUCK),
        (-SIGKILL, Cause.STOPPED, 99, Cause.STOPPED),
        (0, Cause.STUCK, 50, Cause.STUCK),
    ],
)
def test_a_death_has_a_cause(returncode: int, by_parent: Cause | None, peak_mb: float, cause: Cause) -> None:
    assert death(returncode, by_parent, peak_mb=peak_mb) is cause


def test_a_handler_that_exits_with_success_has_crashed_all_the_same() -> None:
    assert death(0, in_hand=1) is Cause.CRASHED
    assert death(0, in_hand=0) is Cause.STOPPED


@given(st.integers(-64, 255), st.sampled_from(list(Cause)), st.integers(0, 100), st.floats(0, 1e6))
def test_what_the_parent_did_itself_it_knows(returncode: int, did: Cause, in_hand: int, peak_mb: float) -> None:
    assert death(returncode, did, in_hand=in_hand, peak_mb=peak_mb) is did


@pytest.mark.parametrize(("in_hand", "alone"), [(0, False), (1, True), (2, False), (50, False)])
def test_a_death_names_an_item_only_when_it_was_the_only_one(in_hand: int, alone: bool) -> None:
    assert is_alone(in_hand) is alone


S = 10**9
NOW = 1_000 * S


def stuck(in_hand: list[tuple[int | None, float | None]], *, pulse_ago: float = 0.0, silence_s: float = 30) -> bool:
    return is_stuck(NOW, pulse_ns=NOW - int(pulse_ago * S), in_hand=in_hand, silence_s=silence_s)


def ago(seconds: float) -> int:
    return NOW - int(seconds * S)


def test_a_child_in_time_is_left_alone() -> None:
    assert not stuck([(ago(4), 5.0), (ago(1), 5.0), (None, 5.0)])
    assert not stuck([(ago(5 + STUCK_GRACE_S / 2), 5.0)]), "it has a moment to deal with it itself"


def test_a_child_that_does_not_deal_with_a_late_item_is_stuck() -> None:
    assert stuck([(ago(1), 5.0), (ago(5 + STUCK_GRACE_S + 0.1), 5.0)])


def test_an_item_without_a_limit_may_keep_a_child_silent_for_ever() -> None:
    assert not stuck([(ago(900), None)], pulse_ago=900)


def test_a_child_that_is_silent_with_nothing_in_hand_is_stuck() -> None:
    assert stuck([(None, 5.0)], pulse_ago=31)
    assert not stuck([(None, 5.0)], pulse_ago=29)


def test_a_limit_of_one_lane_is_no_limit_for_another() -> None:
    assert not stuck([(ago(100), None), (None, 5.0)], pulse_ago=100)


hands = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, NOW)), st.one_of(st.none(), st.floats(0.001, 2_000, allow_nan=False))
    ),
    max_size=4,
)


@given(hands, st.floats(0, 900), st.floats(0.001, 900))
def test_more_patience_never_makes_a_child_stuck(
    in_hand: list[tuple[int | None, float | None]], pulse_ago: float, silence_s: float
) -> None:
    if not stuck(in_hand, pulse_ago=pulse_ago, silence_s=silence_s):
        patient = [(started, None if limit is None else limit * 2) for started, limit in in_hand]
        assert not stuck(patient, pulse_ago=pulse_ago, silence_s=silence_s * 2)
