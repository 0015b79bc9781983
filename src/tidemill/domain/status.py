"""The words for what a job and an item are, and the moves between them."""

from enum import StrEnum
from typing import Final


class Intent(StrEnum):
    """What the user, or a failure policy, wants of a job."""

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


TERMINAL: Final = frozenset(
    {ItemStatus.DONE, ItemStatus.NOT_FOUND, ItemStatus.SKIPPED, ItemStatus.FAILED, ItemStatus.CANCELLED}
)

CLOSED: Final = frozenset({JobStatus.COMPLETED, JobStatus.COMPLETED_WITH_ERRORS, JobStatus.FAILED, JobStatus.CANCELLED})

_S = ItemStatus
TRANSITIONS: Final[dict[ItemStatus, frozenset[ItemStatus]]] = {
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
    **dict.fromkeys(TERMINAL, frozenset({_S.PENDING})),  # reprocess and redrive
}

# The words of the documents that asked for this system, and of neighbours people come from.
_SYNONYMS: Final[dict[str, ItemStatus]] = {
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


_JOB_SYNONYMS: Final[dict[str, JobStatus]] = {
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
    """Read a status in our words or a document's, whatever its case; ValueError when it is neither."""
    folded = _folded(word)
    try:
        return _SYNONYMS.get(folded) or ItemStatus(folded)
    except ValueError:
        known = ", ".join(ItemStatus)
        raise ValueError(f"unknown status {word!r}; known are {known}") from None


def parse_job_status(word: str) -> JobStatus:
    """The same for the status of a job."""
    folded = _folded(word)
    try:
        return _JOB_SYNONYMS.get(folded) or JobStatus(folded)
    except ValueError:
        known = ", ".join(JobStatus)
        raise ValueError(f"unknown status {word!r}; known are {known}") from None


def _folded(word: str) -> str:
    return word.strip().lower().replace("-", "_").replace(" ", "_")


def job_status(
    *, intent: Intent, ingest_done: bool, closed_as: JobStatus | None, total: int, started: bool
) -> JobStatus:
    """The one word shown for a job, from the facts that are stored."""
    if closed_as is not None:
        return closed_as
    if intent in (Intent.CANCEL, Intent.FAIL):
        return JobStatus.CANCELLING
    if intent is Intent.PAUSE:
        return JobStatus.PAUSED
    if not ingest_done:
        return JobStatus.INGESTING if total else JobStatus.PENDING
    return JobStatus.RUNNING if started else JobStatus.PENDING


def closing_status(*, intent: Intent, failed: int) -> JobStatus:
    """What a job with nothing open is closed as."""
    if intent is Intent.CANCEL:
        return JobStatus.CANCELLED
    if intent is Intent.FAIL:
        return JobStatus.FAILED
    return JobStatus.COMPLETED_WITH_ERRORS if failed else JobStatus.COMPLETED
