"""Decides which items the death of a child process counts against.

The parent knows which items a dead child had started. After a crash, these items are suspects: each runs alone, and an
item whose process dies three times while it runs alone fails as poison.

A SIGKILL may come from another process or from the item itself, and the kernel does not report the sender. Therefore:

1. A kill counts against no item the first two times. An item that runs during its third kill is isolated.
2. A kill of an isolated item that runs alone counts like a crash: the third one fails the item.
3. A kill of a child that holds no lease proves that another process sends kills. For the next minute, kills count
   against no item.

An innocent item fails only if six random kills hit it, three of them while it runs alone, and none hits an idle child
in the meantime.

If a host or a parent is lost, no process reports a cause, and the leases expire. The third expired lease in a row
isolates the items of a batch. Then each further one postpones its item for a random time, and the eighth fails it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from signal import SIGKILL, SIGTERM
from uuid import UUID

POISON_CRASH_COUNT = 3
ISOLATE_AFTER_LOST_LEASES = 3
POISON_EXPIRY_COUNT = 8  # leases that expire in a row while an item runs alone
ISOLATE_AFTER_KILLS = 3
KILL_COUNTS_MAX_ITEMS = 10_000
OUTSIDE_KILL_MEMORY_S = 60.0
EXIT_LOOP_FAILED = 71  # EX_OSERR: the child ended because one of its loops kept failing
STUCK_GRACE_S = 1.0


class ExitCause(StrEnum):
    """Why a child process ended."""

    CRASHED = "crashed"  # a signal that the process caused itself, an exit, or out of memory
    KILLED = "killed"  # SIGKILL or SIGTERM, from another process or from an item
    BROKEN = "broken"  # ended by itself because one of its loops kept failing, possibly after an item damaged it
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
    if returncode == EXIT_LOOP_FAILED:
        return ExitCause.BROKEN
    return ExitCause.KILLED if -returncode == SIGTERM else ExitCause.CRASHED


def is_uncertain_cause(cause: ExitCause) -> bool:
    """Return whether an item may have caused the death, but need not have."""
    return cause in (ExitCause.KILLED, ExitCause.BROKEN)


@dataclass(frozen=True, slots=True)
class RunningItem:
    """An item that a child had started and not finished."""

    seq: int
    attempt: int
    started_ns: int


class KillCounts:
    """Counts for each item the deaths of uncertain cause during which it ran. Items that were hit long ago drop out."""

    def __init__(self, max_items: int = KILL_COUNTS_MAX_ITEMS) -> None:
        self._max_items = max_items
        self._deaths: dict[tuple[UUID, int], int] = {}

    def count_death(self, job_id: UUID, seqs: Iterable[int]) -> list[int]:
        """Count one death for these items; return the items to isolate, whose counts are removed."""
        isolated = []
        for seq in seqs:
            deaths = self._deaths.pop((job_id, seq), 0) + 1
            if deaths >= ISOLATE_AFTER_KILLS:
                isolated.append(seq)
            else:
                self._deaths[job_id, seq] = deaths
        while len(self._deaths) > self._max_items:
            del self._deaths[next(iter(self._deaths))]
        return isolated


def is_only_one_item_running(running_items: int) -> bool:
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
