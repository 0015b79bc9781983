"""A job, an item and the result of a time slice, as users and handlers see them."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.core.input_source import InputDefect
from tidemill.core.json_input import JsonObject
from tidemill.core.outcome import ErrorDetails
from tidemill.core.status import Intent, ItemStatus, JobStatus


@dataclass(frozen=True, slots=True)
class Counts:
    """Where every item of a job is. The sum always holds."""

    total: int = 0
    pending: int = 0
    processing: int = 0
    retry_wait: int = 0
    done: int = 0
    not_found: int = 0
    skipped: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def open(self) -> int:
        return self.pending + self.processing + self.retry_wait

    @property
    def settled(self) -> int:
        return self.done + self.not_found + self.skipped + self.failed + self.cancelled

    @property
    def processed(self) -> int:
        """Settled by work: what was cancelled cost none, and says nothing of how quick a job is."""
        return self.settled - self.cancelled

    @property
    def is_consistent(self) -> bool:
        return self.total == self.open + self.settled


@dataclass(frozen=True, slots=True)
class Job:
    """One submitted piece of work, and how far it is."""

    id: UUID
    key: str
    kind: str
    owner_id: int
    status: JobStatus
    counts: Counts
    priority: int = 0
    ingest_complete: bool = True
    failure_reason: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    closed_at: datetime | None = None
    purged_at: datetime | None = None
    intent: Intent = Intent.RUN
    params: JsonObject = field(default_factory=dict)
    policy: JsonObject = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    retried: int = 0  # attempts that ended in another one
    source: str | None = None  # the format of the file that it was made of
    file_id: str | None = None
    result_columns: tuple[str, ...] = ()
    request_id: str | None = None
    traceparent: str | None = None
    ip_address: str | None = None

    @property
    def is_closed(self) -> bool:
        return self.closed_at is not None


@dataclass(slots=True)  # not frozen: one is made per item
class Item:
    """One input row of a job. ``key`` is stable over attempts: give it to services that deduplicate."""

    job_id: UUID
    seq: int
    input: Any
    attempt: int = 1
    defect: InputDefect | None = None
    throttles: int = 0  # refusals since the last attempt that counted
    misses: int = 0  # attempts that ended in NotFound(again=True)

    @property
    def key(self) -> str:
        return f"{self.job_id}:{self.seq}"

    @property
    def row(self) -> int:
        """The record's number in its source, from 1."""
        return self.seq + 1


@dataclass(frozen=True, slots=True)
class ItemRecord:
    """One item of a job as it is stored: its input, and what has become of it."""

    job_id: UUID
    seq: int
    status: ItemStatus
    attempts: int
    input: Any
    result: Any
    error: ErrorDetails | None  # code, reason, retryable
    updated_at: datetime | None

    @property
    def row(self) -> int:
        """The record's number in its source, from 1."""
        return self.seq + 1


@dataclass(frozen=True, slots=True)
class TimeSliceResult:
    """So much was settled by the slice itself; what workers did meanwhile is not in it."""

    settled: int
    failed: int  # of the settled
    retried: int  # will be tried again
    seconds: float
    is_drained: bool  # nothing of the job is open: there is no need for another slice
    next_due_at: datetime | None  # of what waits, the first; None when nothing waits, or the job is not to run
    due_in: float | None  # the same in seconds from now, 0 when it is due
    child_died: bool = False  # the process died in it; what was finished is saved, the rest goes back
