"""A Python model of the expected state of every item of every job."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.status import Intent, ItemStatus, JobStatus

MAX_ATTEMPTS = 3
RETRYABLE_CODE = "even"  # errors with another code are permanent
CONDEMNED = (Intent.CANCEL, Intent.FAIL)


@dataclass
class ItemModel:
    """The state of an item: ready, leased or settled; `word` is its status."""

    seq: int
    place: str = "ready"
    word: ItemStatus = ItemStatus.PENDING
    attempts: int = 0
    due: bool = True
    has_row: bool = False
    code: str | None = None
    seen_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.place != "settled"

    @property
    def is_retryable(self) -> bool:
        return self.code == RETRYABLE_CODE

    @property
    def status(self) -> ItemStatus:
        return ItemStatus.PROCESSING if self.place == "leased" else self.word

    def go_back(self) -> None:
        self.place, self.due = "ready", True

    def settle(self, verdict: Verdict, *, sparse: bool) -> None:
        self.word, self.attempts, self.code = verdict.status, verdict.attempts, verdict.code
        if verdict.delay is None:
            self.place = "settled"
        else:
            self.place, self.due = "ready", verdict.delay == 0
        self.has_row = self.has_row or not (sparse and verdict.status is ItemStatus.DONE)

    def cancel(self) -> None:
        self.place, self.word = "settled", ItemStatus.CANCELLED

    def reopen(self, *, reset_attempts: bool) -> None:
        self.place, self.word, self.due = "ready", ItemStatus.PENDING, True
        self.attempts = 0 if reset_attempts else self.attempts


@dataclass
class JobModel:
    id: UUID
    sparse: bool
    policy: dict[str, object]
    priority: int
    ingest_done: bool
    intent: Intent = Intent.RUN
    closed_as: JobStatus | None = None
    items: list[ItemModel] = field(default_factory=list)
    reader: UUID | None = None
    reader_expired: bool = False
    forgiven: int = 0
    cut: bool = False  # its source is not at its end, but is not read any more

    @property
    def is_running(self) -> bool:
        return self.closed_as is None and self.intent is Intent.RUN

    @property
    def is_condemned(self) -> bool:
        return self.closed_as is None and self.intent in CONDEMNED

    @property
    def is_claimable(self) -> bool:
        return self.is_running and any(item.place == "ready" and item.due for item in self.items)

    @property
    def wants_a_reader(self) -> bool:
        return self.is_running and not self.ingest_done and (self.reader is None or self.reader_expired)

    @property
    def counts(self) -> Counter[str]:
        return Counter(item.status.value for item in self.items)

    @property
    def codes(self) -> Counter[str | None]:
        return Counter(item.code for item in self.items if item.word is ItemStatus.FAILED)

    @property
    def has_tripped(self) -> bool:
        failed = self.counts["failed"] - self.forgiven
        match self.policy.get("mode"):
            case "fail_fast":
                return failed > 0
            case "tolerate":
                return failed > int(str(self.policy["max_failed"]))
            case _:
                return False

    def add(self, n: int) -> None:
        self.items += [ItemModel(seq) for seq in range(len(self.items), len(self.items) + n)]

    def closing(self) -> JobStatus | None:
        """Return the status that the job must be closed with, or None if it must stay open."""
        may_close = self.closed_as is None and (self.ingest_done or self.intent in CONDEMNED)
        if not may_close or any(item.is_open for item in self.items):
            return None
        if self.intent is Intent.CANCEL:
            return JobStatus.CANCELLED
        if self.intent is Intent.FAIL or self.has_tripped:
            return JobStatus.FAILED
        return JobStatus.COMPLETED_WITH_ERRORS if self.counts["failed"] else JobStatus.COMPLETED

    @property
    def has_rest(self) -> bool:
        return self.closed_as is not None and (self.cut or not self.ingest_done)

    def reopen(self, *, rest: bool) -> None:
        if self.cut or (not self.ingest_done and self.intent in CONDEMNED):
            self.cut = self.ingest_done = not rest
            self.reader, self.reader_expired = None, False
        self.intent = Intent.PAUSE if self.intent is Intent.PAUSE else Intent.RUN
        self.closed_as, self.forgiven = None, self.counts["failed"]

    def close(self, closed_as: JobStatus) -> None:
        self.closed_as, self.reader, self.reader_expired = closed_as, None, False


@dataclass
class HandModel:
    """A lease as its worker remembers it."""

    lease: Lease
    worker: str
    holds: set[int]
    expired: bool = False
    last: tuple[Lease, list[Verdict]] | None = None


@dataclass
class ReaderModel:
    """An ingest lease as its worker remembers it."""

    job_id: UUID
    lease_id: UUID
    next_seq: int
    last: tuple[int, int] | None = None


@dataclass
class Model:
    jobs: dict[UUID, JobModel] = field(default_factory=dict)
    deleted: set[UUID] = field(default_factory=set)
    hands: list[HandModel] = field(default_factory=list)
    zombies: list[HandModel] = field(default_factory=list)
    readers: list[ReaderModel] = field(default_factory=list)

    def held(self, hand: HandModel) -> Iterator[ItemModel]:
        items = self.jobs[hand.lease.job_id].items
        return (items[seq] for seq in sorted(hand.holds))

    def let_go(self, hands: Iterable[HandModel], *, items_go_back: bool = True) -> None:
        """Lost leases: flushes of their workers must change nothing."""
        for hand in list(hands):
            if items_go_back:
                for item in self.held(hand):
                    item.go_back()
            self.hands.remove(hand)
            self.zombies.append(hand)

    def next_to_read(self) -> UUID | None:
        wanting = [job for job in self.jobs.values() if job.wants_a_reader]
        return min(wanting, key=lambda job: (-job.priority, job.id)).id if wanting else None

    def is_reading(self, reader: ReaderModel) -> bool:
        job = self.jobs.get(reader.job_id)
        return job is not None and job.reader == reader.lease_id
