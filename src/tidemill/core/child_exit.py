"""Which items the death of a child process counts against.

A parent that sees its child die knows which items the child had started. Those are suspects: they run alone, one by
one, and three deaths alone make an item poison. A death that says nothing about the items, such as a SIGKILL from
outside or a lost host, counts against none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from signal import SIGKILL, SIGTERM

POISON_CRASH_COUNT = 3
ISOLATE_AFTER_LOST_LEASES = 3
STUCK_GRACE_S = 1.0


class ExitCause(StrEnum):
    """Why a child is no more."""

    CRASHED = "crashed"  # by itself: a signal of its own making, an exit, out of memory
    KILLED = "killed"  # by somebody else
    STUCK = "stuck"  # by its parent, because an item was over its time
    STOPPED = "stopped"  # as it was told, or by its parent at the end of the grace


def classify_exit(
    *, returncode: int, killed_as: ExitCause | None, running_items: int, peak_rss_mb: float, limit_mb: float
) -> ExitCause:
    """``returncode`` as subprocess gives it: negative is a signal. The kernel's OOM killer sends SIGKILL too."""
    if killed_as is not None:
        return killed_as
    if returncode == 0:  # a child that stops as it should has nothing in hand: a handler called exit(0)
        return ExitCause.CRASHED if running_items else ExitCause.STOPPED
    if -returncode == SIGKILL:
        return ExitCause.CRASHED if peak_rss_mb >= 0.8 * limit_mb else ExitCause.KILLED
    return ExitCause.KILLED if -returncode == SIGTERM else ExitCause.CRASHED


@dataclass(frozen=True, slots=True)
class RunningItem:
    """An item that a child had started and not finished."""

    seq: int
    attempt: int
    started_ns: int


def is_only_running_item(running_items: int) -> bool:
    """Only when one single item was in the whole process does its death name the item."""
    return running_items == 1


def is_child_stuck(
    now_ns: int, *, heartbeat_ns: int, oldest_items: Sequence[tuple[int | None, float | None]], silence_s: float
) -> bool:
    """Whether a child that holds leases must be killed.

    Either an item is over its time and the child has not dealt with it, or the child says nothing and no item
    could be the reason. ``in_hand`` has, per lease, when its oldest item was started and the limit of one item,
    in seconds.
    """
    for started_ns, timeout in oldest_items:
        if started_ns is not None and timeout is not None and now_ns - started_ns > (timeout + STUCK_GRACE_S) * 1e9:
            return True
    if any(started_ns is not None for started_ns, _ in oldest_items):
        return False
    return now_ns - heartbeat_ns > silence_s * 1e9
