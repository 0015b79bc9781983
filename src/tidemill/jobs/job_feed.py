"""Streams of job changes. One query every half second serves all subscriptions, and none runs without them."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.core.errors import Busy
from tidemill.core.job import Job
from tidemill.runtime import Runtime
from tidemill.store import database_clock, job_records
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

JOB_FEED_POLL_S = 0.5
JOB_FEED_OVERLAP = timedelta(seconds=10)  # finds changes that were committed late
OPEN_STREAMS_MAX = 1_000
OPEN_STREAMS_PER_USER_MAX = 50


@dataclass(eq=False)
class JobSubscription:
    """One stream of a user: one job, or all jobs of an owner (None: all owners) and one pinned job."""

    user_id: int
    job_id: UUID | None = None
    owner_id: int | None = None
    pinned_job_id: UUID | None = None
    sent_fingerprints: dict[UUID, str] = field(default_factory=dict)
    unsent_jobs: dict[UUID, Job] = field(default_factory=dict)
    since: datetime | None = None  # jobs that closed before are not sent; set to the start of the stream by default
    is_new: bool = True
    is_deleted: bool = False
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, job: Job) -> bool:
        if self.job_id is not None:
            return job.id == self.job_id
        if job.id == self.pinned_job_id:
            return True
        is_relevant = not job.is_closed or self.since is None or (job.updated_at or self.since) > self.since
        return is_relevant and (self.owner_id is None or job.owner_id == self.owner_id)

    def queue_update_if_changed(self, job: Job) -> None:
        """Queue the state of a job if it changed. It replaces an older unsent state."""
        if self.matches(job) and self.sent_fingerprints.get(job.id) != fingerprint_job(job):
            self.unsent_jobs[job.id] = job
            self.wakeup.set()


def fingerprint_job(job: Job) -> str:
    """Return a short hash of the visible state of a job."""
    state = (job.status, sorted(asdict(job.counts).items()), job.updated_at, job.failure_reason)
    return hashlib.sha256(repr(state).encode()).hexdigest()[:16]


class JobFeed:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._subscriptions: set[JobSubscription] = set()
        self._open_streams: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._polled_at: datetime | None = None

    @contextlib.contextmanager
    def reserve_stream(self, user_id: int) -> Iterator[None]:
        """Count a stream while the block runs; raise Busy if too many are open. A started stream cannot be rejected."""
        if self._open_streams.total() >= OPEN_STREAMS_MAX or self._open_streams[user_id] >= OPEN_STREAMS_PER_USER_MAX:
            raise Busy("Too many event streams are open. Close some of them.")
        self._open_streams[user_id] += 1
        try:
            yield
        finally:
            self._open_streams[user_id] -= 1
            self._open_streams += Counter()  # removes users without streams

    async def stream_changes(self, subscription: JobSubscription) -> AsyncIterator[list[Job]]:
        """Yield changed jobs at most twice a second, or an empty list after 10 s without a change."""
        self._subscriptions.add(subscription)
        if self._task is None or self._task.done():
            self._polled_at = None
            self._task = asyncio.create_task(self._poll_while_subscribed())
        try:
            while not subscription.is_deleted:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(subscription.wakeup.wait(), 10)
                subscription.wakeup.clear()
                changed, subscription.unsent_jobs = subscription.unsent_jobs, {}
                subscription.sent_fingerprints |= {job.id: fingerprint_job(job) for job in changed.values()}
                yield list(changed.values())
        finally:
            self._subscriptions.discard(subscription)

    async def _poll_while_subscribed(self) -> None:
        while self._subscriptions:
            try:
                await self._poll_and_offer_changes()
            except Exception as error:  # noqa: BLE001  streams survive a database outage
                emit("loop.failed", loop="hub", error=str(error))
            await asyncio.sleep(JOB_FEED_POLL_S)

    async def _poll_and_offer_changes(self) -> None:
        subscriptions = list(self._subscriptions)
        now = await self._db.run(database_clock.read_database_clock)
        jobs = await self._db.read(
            job_records.list_open_or_changed_jobs,
            sorted({id_ for one in subscriptions for id_ in (one.job_id, one.pinned_job_id) if id_ is not None}),
            sorted({one.owner_id for one in subscriptions if one.job_id is None and one.owner_id is not None}),
            all_owners=any(one.job_id is None and one.owner_id is None for one in subscriptions),
            since=self._compute_poll_start_and_clear_new(subscriptions, now),
        )
        for subscription in subscriptions:
            for job in jobs:
                subscription.queue_update_if_changed(job)
            if subscription.job_id is not None and all(job.id != subscription.job_id for job in jobs):
                subscription.is_deleted = True
                subscription.wakeup.set()
        self._polled_at = now

    def _compute_poll_start_and_clear_new(self, subscriptions: list[JobSubscription], now: datetime) -> datetime:
        """Return the time of the last poll minus the overlap, or the earliest start of a new subscription."""
        since = (self._polled_at or now) - JOB_FEED_OVERLAP
        for subscription in subscriptions:
            subscription.since = subscription.since or now
            if subscription.is_new:
                since = min(since, subscription.since)
            subscription.is_new = False
        return since


def make_job_feed(runtime: Runtime) -> JobFeed:
    return JobFeed(runtime.db)
