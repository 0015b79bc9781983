"""A job as it is shown."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.domain.status import Intent, JobStatus


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
    def add_up(self) -> bool:
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
    params: dict[str, Any] = field(default_factory=dict)
    policy: dict[str, Any] = field(default_factory=dict)
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
