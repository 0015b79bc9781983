"""Tests of which items the death of a child counts against, and when a child is stuck."""

from signal import SIGABRT, SIGKILL, SIGSEGV, SIGTERM
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.core.child_exit import (
    EXIT_LOOP_FAILED,
    ISOLATE_AFTER_KILLS,
    STUCK_GRACE_S,
    ExitCause,
    KillCounts,
    classify_exit,
    is_child_stuck,
    is_only_one_item_running,
)


def death(returncode: int, by_parent: ExitCause | None = None, *, in_hand: int = 0, peak_mb: float = 50) -> ExitCause:
    return classify_exit(
        returncode=returncode, killed_as=by_parent, running_items=in_hand, peak_rss_mb=peak_mb, limit_mb=100
    )


@pytest.mark.parametrize(
    ("returncode", "by_parent", "peak_mb", "cause"),
    [
        (0, None, 50, ExitCause.STOPPED),
        (1, None, 50, ExitCause.CRASHED),
        (78, None, 50, ExitCause.CRASHED),
        (EXIT_LOOP_FAILED, None, 50, ExitCause.BROKEN),
        (-SIGSEGV, None, 50, ExitCause.CRASHED),
        (-SIGABRT, None, 50, ExitCause.CRASHED),
        (-SIGTERM, None, 50, ExitCause.KILLED),
        (-SIGKILL, None, 50, ExitCause.KILLED),
        (-SIGKILL, None, 79.9, ExitCause.KILLED),
        (-SIGKILL, None, 80, ExitCause.CRASHED),  # the kernel's OOM killer
        (-SIGKILL, ExitCause.STUCK, 50, ExitCause.STUCK),
        (-SIGKILL, ExitCause.STOPPED, 99, ExitCause.STOPPED),
        (0, ExitCause.STUCK, 50, ExitCause.STUCK),
    ],
)
def test_child_exit_is_classified_by_code_signal_and_memory(
    returncode: int, by_parent: ExitCause | None, peak_mb: float, cause: ExitCause
) -> None:
    assert death(returncode, by_parent, peak_mb=peak_mb) is cause


def test_child_exit_zero_with_running_item_is_crash() -> None:
    assert death(0, in_hand=1) is ExitCause.CRASHED
    assert death(0, in_hand=0) is ExitCause.STOPPED


@given(st.integers(-64, 255), st.sampled_from(list(ExitCause)), st.integers(0, 100), st.floats(0, 1e6))
def test_child_killed_by_parent_keeps_parents_cause(
    returncode: int, did: ExitCause, in_hand: int, peak_mb: float
) -> None:
    assert death(returncode, did, in_hand=in_hand, peak_mb=peak_mb) is did


@pytest.mark.parametrize(("in_hand", "alone"), [(0, False), (1, True), (2, False), (50, False)])
def test_crash_is_attributed_to_item_only_if_it_ran_alone(in_hand: int, alone: bool) -> None:
    assert is_only_one_item_running(in_hand) is alone


def test_item_is_isolated_only_after_repeated_kills() -> None:
    counts, job_id = KillCounts(), UUID(int=1)
    hits = [counts.count_death(job_id, [7, 10 + death]) for death in range(ISOLATE_AFTER_KILLS)]
    assert hits == [[]] * (ISOLATE_AFTER_KILLS - 1) + [[7]]
    assert counts.count_death(job_id, [7]) == [], "its count starts again"
    assert counts.count_death(UUID(int=2), [11]) == [], "an item of another job"


def test_kill_counts_forget_items_that_were_hit_long_ago() -> None:
    counts, job_id = KillCounts(max_items=2), UUID(int=1)
    for _ in range(ISOLATE_AFTER_KILLS - 1):
        counts.count_death(job_id, [7])
    counts.count_death(job_id, [8, 9])
    assert counts.count_death(job_id, [7]) == []


S = 10**9
NOW = 1_000 * S


def stuck(in_hand: list[tuple[int | None, float | None]], *, pulse_ago: float = 0.0, silence_s: float = 30) -> bool:
    return is_child_stuck(NOW, heartbeat_ns=NOW - int(pulse_ago * S), oldest_items=in_hand, silence_s=silence_s)


def ago(seconds: float) -> int:
    return NOW - int(seconds * S)


def test_child_within_item_timeouts_is_not_stuck() -> None:
    assert not stuck([(ago(4), 5.0), (ago(1), 5.0), (None, 5.0)])
    assert not stuck([(ago(5 + STUCK_GRACE_S / 2), 5.0)]), "the child has time to cancel the item itself"


def test_child_with_item_past_timeout_and_grace_is_stuck() -> None:
    assert stuck([(ago(1), 5.0), (ago(5 + STUCK_GRACE_S + 0.1), 5.0)])


def test_child_with_item_without_timeout_is_never_stuck() -> None:
    assert not stuck([(ago(900), None)], pulse_ago=900)


def test_idle_child_without_heartbeat_is_stuck() -> None:
    assert stuck([(None, 5.0)], pulse_ago=31)
    assert not stuck([(None, 5.0)], pulse_ago=29)


def test_item_timeout_of_one_lane_does_not_apply_to_another() -> None:
    assert not stuck([(ago(100), None), (None, 5.0)], pulse_ago=100)


hands = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, NOW)), st.one_of(st.none(), st.floats(0.001, 2_000, allow_nan=False))
    ),
    max_size=4,
)


@given(hands, st.floats(0, 900), st.floats(0.001, 900))
def test_longer_timeouts_never_make_child_stuck(
    in_hand: list[tuple[int | None, float | None]], pulse_ago: float, silence_s: float
) -> None:
    if not stuck(in_hand, pulse_ago=pulse_ago, silence_s=silence_s):
        patient = [(started, None if limit is None else limit * 2) for started, limit in in_hand]
        assert not stuck(patient, pulse_ago=pulse_ago, silence_s=silence_s * 2)
