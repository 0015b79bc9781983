"""Watching jobs: one look at the database twice a second for all who watch, and only while somebody does."""

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
from tidemill.store import job_records
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

JOB_FEED_POLL_S = 0.5
JOB_FEED_OVERLAP = timedelta(seconds=10)  # a change that was committed late is seen all the same
OPEN_STREAMS_MAX = 1_000
OPEN_STREAMS_PER_USER_MAX = 50


@dataclass(eq=False)
class JobSubscription:
    """One stream of a user: a job, or a whole tab with the jobs of an owner, None for all, and one more job by name."""

    user_id: int
    job_id: UUID | None = None
    owner_id: int | None = None
    pinned_job_id: UUID | None = None
    sent_fingerprints: dict[UUID, str] = field(default_factory=dict)
    unsent_jobs: dict[UUID, Job] = field(default_factory=dict)
    since: datetime | None = None  # what was closed before is no news; by and by, when the stream began
    is_new: bool = True
    is_deleted: bool = False
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)

    def matches(self, job: Job) -> bool:
        if self.job_id is not None:
            return job.id == self.job_id
        if job.id == self.pinned_job_id:
            return True
        is_news = not job.is_closed or self.since is None or (job.updated_at or self.since) > self.since
        return is_news and (self.owner_id is None or job.owner_id == self.owner_id)

    def offer_update(self, job: Job) -> None:
        """The newest state replaces one that was not sent yet."""
        if self.matches(job) and self.sent_fingerprints.get(job.id) != fingerprint_job(job):
            self.unsent_jobs[job.id] = job
            self.wakeup.set()


def fingerprint_job(job: Job) -> str:
    """What a watcher sees of a job, in a few letters: the same as long as nothing changed."""
    seen = (job.status, sorted(asdict(job.counts).items()), job.updated_at, job.failure_reason)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


class JobFeed:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._subscriptions: set[JobSubscription] = set()
        self._open_streams: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._polled_at: datetime | None = None

    @contextlib.contextmanager
    def reserve_stream(self, user_id: int) -> Iterator[None]:
        """From before a stream begins, because afterwards nobody can be refused, until it is over."""
        if self._open_streams.total() >= OPEN_STREAMS_MAX or self._open_streams[user_id] >= OPEN_STREAMS_PER_USER_MAX:
            raise Busy("too many streams are open; close some")
        self._open_streams[user_id] += 1
        try:
            yield
        finally:
            self._open_streams[user_id] -= 1
            self._open_streams += Counter()  # forgets who has none

    async def stream_changes(self, subscription: JobSubscription) -> AsyncIterator[list[Job]]:
        """What changed, at most twice a second; an empty list now and then, to look around."""
        self._subscriptions.add(subscription)
        if self._task is None or self._task.done():
            self._polled_at = None
            self._task = asyncio.create_task(self._poll_while_subscribed())
        try:
            while not subscription.is_deleted:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(subscription.wakeup.wait(), 10)
                subscription.wakeup.clear()
                news, subscription.unsent_jobs = subscription.unsent_jobs, {}
                subscription.sent_fingerprints |= {job.id: fingerprint_job(job) for job in news.values()}
                yield list(news.values())
        finally:
            self._subscriptions.discard(subscription)

    async def _poll_while_subscribed(self) -> None:
        while self._subscriptions:
            try:
                await self._poll_changes()
            except Exception as error:  # noqa: BLE001  streams outlive a database that is away for a while
                emit("loop.failed", loop="hub", error=str(error))
            await asyncio.sleep(JOB_FEED_POLL_S)

    async def _poll_changes(self) -> None:
        watchers = list(self._subscriptions)
        now = await self._db.run(job_records.read_database_clock)
        found = await self._db.read(
            job_records.list_open_or_changed_jobs,
            sorted({one for watcher in watchers for one in (watcher.job_id, watcher.pinned_job_id) if one is not None}),
            sorted({w.owner_id for w in watchers if w.job_id is None and w.owner_id is not None}),
            all_owners=any(w.job_id is None and w.owner_id is None for w in watchers),
            since=self._advance_poll_start(watchers, now),
        )
        for watcher in watchers:
            for job in found:
                watcher.offer_update(job)
            if watcher.job_id is not None and all(job.id != watcher.job_id for job in found):
                watcher.is_deleted = True
                watcher.wakeup.set()
        self._polled_at = now

    def _advance_poll_start(self, watchers: list[JobSubscription], now: datetime) -> datetime:
        """From the last look on; for those who have just come, from where they say they were."""
        since = (self._polled_at or now) - JOB_FEED_OVERLAP
        for watcher in watchers:
            watcher.since = watcher.since or now
            if watcher.is_new:
                since = min(since, watcher.since)
            watcher.is_new = False
        return since


def make_job_feed(runtime: Runtime) -> JobFeed:
    return JobFeed(runtime.db)
