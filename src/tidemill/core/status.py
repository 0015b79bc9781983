"""The statuses of jobs and items, how they are derived, and why an open item is still open."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final


class Intent(StrEnum):
    """What should happen to a job, as set by the user or its failure policy."""

    RUN = "run"
    PAUSE = "pause"
    CANCEL = "cancel"
    FAIL = "fail"


class JobStatus(StrEnum):
    PENDING = "pending"
    INGESTING = "ingesting"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    COMPLETED = "completed"
    COMPLETED_WITH_ERRORS = "completed_with_errors"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ItemStatus(StrEnum):
    PENDING = "pending"
    PROCESSING = "processing"
    RETRY_WAIT = "retry_wait"
    DONE = "done"
    NOT_FOUND = "not_found"
    SKIPPED = "skipped"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL_ITEM_STATUSES: Final = frozenset(
    {ItemStatus.DONE, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED, ItemStatus.CANCELLED}
)

CLOSED_JOB_STATUSES: Final = frozenset(
    {JobStatus.COMPLETED, JobStatus.COMPLETED_WITH_ERRORS, JobStatus.FAILED, JobStatus.CANCELLED}
)

_S = ItemStatus
ITEM_STATUS_TRANSITIONS: Final[dict[ItemStatus, frozenset[ItemStatus]]] = {
    _S.PENDING: frozenset({_S.PROCESSING, _S.CANCELLED}),
    _S.PROCESSING: frozenset(
        {
            _S.DONE,
            _S.NOT_FOUND,
            _S.SKIPPED,
            _S.FAILED,
            _S.RETRY_WAIT,
            _S.PENDING,
        }  # pending: released or swept
    ),
    _S.RETRY_WAIT: frozenset({_S.PROCESSING, _S.CANCELLED, _S.PENDING}),
    **dict.fromkeys(TERMINAL_ITEM_STATUSES, frozenset({_S.PENDING})),  # reprocess and redrive
}

# Status names of other systems, accepted as synonyms.
_ITEM_STATUS_SYNONYMS: Final[dict[str, ItemStatus]] = {
    "error": _S.FAILED,
    "dlq": _S.FAILED,
    "dead": _S.FAILED,
    "dead_letter": _S.FAILED,
    "succeeded": _S.DONE,
    "success": _S.DONE,
    "completed": _S.DONE,
    "submitted": _S.PENDING,
    "queued": _S.PENDING,
    "running": _S.PROCESSING,
    "retrying": _S.RETRY_WAIT,
    "canceled": _S.CANCELLED,
}


_JOB_STATUS_SYNONYMS: Final[dict[str, JobStatus]] = {
    "submitted": JobStatus.PENDING,
    "queued": JobStatus.PENDING,
    "processing": JobStatus.RUNNING,
    "in_progress": JobStatus.RUNNING,
    "done": JobStatus.COMPLETED,
    "succeeded": JobStatus.COMPLETED,
    "success": JobStatus.COMPLETED,
    "error": JobStatus.FAILED,
    "canceled": JobStatus.CANCELLED,
}


def parse_item_status(word: str) -> ItemStatus:
    """Parse an item status or a synonym, in any case; raise ValueError if it is unknown."""
    folded = _normalize_status(word)
    try:
        return _ITEM_STATUS_SYNONYMS.get(folded) or ItemStatus(folded)
    except ValueError:
        known = ", ".join(ItemStatus)
        raise ValueError(f'unknown status "{word}"; must be one of {known}') from None


def parse_job_status(word: str) -> JobStatus:
    """Parse a job status or a synonym, in any case; raise ValueError if it is unknown."""
    folded = _normalize_status(word)
    try:
        return _JOB_STATUS_SYNONYMS.get(folded) or JobStatus(folded)
    except ValueError:
        known = ", ".join(JobStatus)
        raise ValueError(f'unknown status "{word}"; must be one of {known}') from None


def _normalize_status(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def derive_job_status(
    *, intent: Intent, ingest_done: bool, closed_as: JobStatus | None, total: int, started: bool
) -> JobStatus:
    """Derive the status of a job from its stored state."""
    if closed_as is not None:
        return closed_as
    if intent in (Intent.CANCEL, Intent.FAIL):
        return JobStatus.CANCELLING
    if intent is Intent.PAUSE:
        return JobStatus.PAUSED
    if not ingest_done:
        return JobStatus.INGESTING if total else JobStatus.PENDING
    return JobStatus.RUNNING if started else JobStatus.PENDING


def derive_closing_status(*, intent: Intent, failed: int) -> JobStatus:
    """Return the final status of a job without open items."""
    if intent is Intent.CANCEL:
        return JobStatus.CANCELLED
    if intent is Intent.FAIL:
        return JobStatus.FAILED
    return JobStatus.COMPLETED_WITH_ERRORS if failed else JobStatus.COMPLETED


_STATUS_BY_BATCH_STATE = {
    "leased": ItemStatus.PROCESSING,
    "ready": ItemStatus.PENDING,
    "cancelled": ItemStatus.CANCELLED,
}
_WAITING_STATUSES = (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)


@dataclass(frozen=True, slots=True)
class ItemStatusResolver:
    """Resolves item statuses from live ranges ``(lo, hi, state)``, sorted by end, and the items of leased lists.

    All of them must be read in one snapshot.
    """

    ranges: Sequence[tuple[int, int, str]] = ()
    leased_seqs: frozenset[int] = frozenset()
    sparse: bool = False
    _ends: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", [hi for _, hi, _ in self.ranges])

    def resolve(self, seq: int, stored: str | None) -> str | None:
        """Return the status of an item, given the stored status of its outcome if it has one."""
        if stored is not None:
            return ItemStatus.PROCESSING if stored in _WAITING_STATUSES and seq in self.leased_seqs else stored
        # Live ranges do not overlap: the first one that ends after the item covers it, or none does.
        index = bisect_right(self._ends, seq)
        if index < len(self.ranges) and self.ranges[index][0] <= seq:
            return _STATUS_BY_BATCH_STATE[self.ranges[index][2]]
        return ItemStatus.DONE if self.sparse else None


WORKER_LIVENESS_S = 30.0  # a worker without a heartbeat for longer counts as dead; workers send one every 5 s


def explain_why_item_is_open(
    status: ItemStatus,
    *,
    intent: Intent,
    worker: str | None,
    due_at: datetime | None,
    is_due: bool,
    has_worker: bool,
    has_kickoff: bool = False,
    limiter: str | None = None,
    blocked_until: datetime | None = None,
) -> str:
    """Return why an item is not settled yet: the first condition that must change."""
    if status is ItemStatus.PROCESSING:
        return f"Processing on worker {worker}"
    if intent in (Intent.CANCEL, Intent.FAIL):
        return "Cancelling"
    if intent is Intent.PAUSE:
        return "Paused"
    if not has_worker:
        return "No running worker handles this kind" + ("; a kickoff request can run the item" if has_kickoff else "")
    if status is ItemStatus.RETRY_WAIT and due_at is not None and not is_due:
        return f"Waiting for its retry at {due_at.isoformat(timespec='seconds')}"
    if limiter is not None and blocked_until is not None:
        return f'Limiter "{limiter}" is blocked until {blocked_until.isoformat(timespec="seconds")}'
    return "Queued" if limiter is None else f'Waiting for limiter "{limiter}"'
