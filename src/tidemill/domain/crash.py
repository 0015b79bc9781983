"""Whom the death of a child process charges.

A parent that sees its child die knows which items it had in hand. Those are suspects: they run alone, one
by one, and three deaths alone make an item poison. A death that says nothing about the items — somebody
else's SIGKILL, a lost host — charges nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from signal import SIGKILL, SIGTERM

POISON_DEATHS = 3
ISOLATE_LOSSES = 3
STUCK_GRACE_S = 1.0


class Cause(StrEnum):
    """Why a child is no more."""

    CRASHED = "crashed"  # by itself: a signal of its own making, an exit, out of memory
    KILLED = "killed"  # by somebody else
    STUCK = "stuck"  # by its parent, because an item was over its time
    STOPPED = "stopped"  # as it was told, or by its parent at the end of the grace


def cause_of_death(
    *, returncode: int, by_parent: Cause | None, in_hand: int, peak_rss_mb: float, limit_mb: float
) -> Cause:
    """``returncode`` as subprocess gives it: negative is a signal. The kernel's OOM killer sends SIGKILL too."""
    if by_parent is not None:
        return by_parent
    if returncode == 0:  # a child that stops as it should has nothing in hand: a handler called exit(0)
        return Cause.CRASHED if in_hand else Cause.STOPPED
    if -returncode == SIGKILL:
        return Cause.CRASHED if peak_rss_mb >= 0.8 * limit_mb else Cause.KILLED
    return Cause.KILLED if -returncode == SIGTERM else Cause.CRASHED


@dataclass(frozen=True, slots=True)
class InHand:
    """An item that a child had started and not finished."""

    seq: int
    attempt: int
    started_ns: int


def is_alone(in_hand: int) -> bool:
    """Only when one single item was in the whole process does its death name the item."""
    return in_hand == 1


def is_stuck(
    now_ns: int, *, pulse_ns: int, in_hand: Sequence[tuple[int | None, float | None]], silence_s: float
) -> bool:
    """Whether a child that holds leases must be killed.

    Either an item is over its time and the child has not dealt with it, or the child says nothing and no item
    could be the reason. ``in_hand`` has, per lease, when its oldest item was started and the limit of one item,
    in seconds.
    """
    for started_ns, timeout in in_hand:
        if started_ns is not None and timeout is not None and now_ns - started_ns > (timeout + STUCK_GRACE_S) * 1e9:
            return True
    if any(started_ns is not None for started_ns, _ in in_hand):
        return False
    return now_ns - pulse_ns > silence_s * 1e9
