"""Decides which items the death of a child process counts against.

The parent knows which items a dead child had started. These items are suspects: each runs alone, and an item that
kills its process three times alone fails as poison. A death that an item cannot have caused, such as a SIGKILL from
another process or a lost host, counts against no item.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from signal import SIGKILL, SIGTERM

POISON_CRASH_COUNT = 3
ISOLATE_AFTER_LOST_LEASES = 3
STUCK_GRACE_S = 1.0


class ExitCause(StrEnum):
    """Why a child process ended."""

    CRASHED = "crashed"  # a signal that the process caused itself, an exit, or out of memory
    KILLED = "killed"  # a signal from another process
    STUCK = "stuck"  # killed by its parent because an item exceeded its timeout
    STOPPED = "stopped"  # stopped on request, or killed by its parent after the grace period


def classify_exit(
    *, returncode: int, killed_as: ExitCause | None, running_items: int, peak_rss_mb: float, limit_mb: float
) -> ExitCause:
    """Return why a child process ended.

    ``returncode`` is that of ``subprocess``: a negative value is a signal. The kernel's OOM killer also sends SIGKILL.
    """
    if killed_as is not None:
        return killed_as
    if returncode == 0:  # a child that stops normally has no running items; otherwise a handler called exit(0)
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
    """Return whether exactly one item ran in the process, so that its death was caused by this item."""
    return running_items == 1


def is_child_stuck(
    now_ns: int, *, heartbeat_ns: int, oldest_items: Sequence[tuple[int | None, float | None]], silence_s: float
) -> bool:
    """Return whether a child that holds leases must be killed.

    A child is stuck if an item exceeded its timeout and the child has not cancelled it, or if the child sends no
    heartbeat although no item is running. ``oldest_items`` has, per lease, the start of its oldest item and the
    timeout of one item in seconds.
    """
    for started_ns, timeout in oldest_items:
        if started_ns is not None and timeout is not None and now_ns - started_ns > (timeout + STUCK_GRACE_S) * 1e9:
            return True
    if any(started_ns is not None for started_ns, _ in oldest_items):
        return False
    return now_ns - heartbeat_ns > silence_s * 1e9
