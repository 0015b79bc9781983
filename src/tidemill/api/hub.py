"""Watching jobs: one look at the database twice a second for all who watch, and only while somebody does."""

import asyncio
import contextlib
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from tidemill.domain.errors import Busy
from tidemill.domain.job import Job
from tidemill.store import jobs
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

EVERY_S = 0.5
OVERLAP = timedelta(seconds=10)  # a change that was committed late is seen all the same
WATCHERS_MAX = 1_000
OF_ONE_USER = 50


@dataclass(eq=False)
class Watcher:
    """One stream of a user: a job, or a whole tab with the jobs of an owner, None for all, and one more job by name."""

    user_id: int
    job_id: UUID | None = None
    owner_id: int | None = None
    also: UUID | None = None
    sent: dict[UUID, str] = field(default_factory=dict)
    news: dict[UUID, Job] = field(default_factory=dict)
    since: datetime | None = None  # what was closed before is no news; by and by, when the stream began
    is_new: bool = True
    is_gone: bool = False
    ring: asyncio.Event = field(default_factory=asyncio.Event)

    def cares(self, job: Job) -> bool:
        if self.job_id is not None:
            return job.id == self.job_id
        if job.id == self.also:
            return True
        is_news = not job.is_closed or self.since is None or (job.updated_at or self.since) > self.since
        return is_news and (self.owner_id is None or job.owner_id == self.owner_id)

    def offer(self, job: Job) -> None:
        """The newest state replaces one that was not sent yet."""
        if self.cares(job) and self.sent.get(job.id) != print_of(job):
            self.news[job.id] = job
            self.ring.set()


def print_of(job: Job) -> str:
    """What a watcher sees of a job, in a few letters: the same as long as nothing changed."""
    seen = (job.status, sorted(asdict(job.counts).items()), job.updated_at, job.failure_reason)
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


class Hub:
    def __init__(self, db: Database) -> None:
        self._db = db
        self._watchers: set[Watcher] = set()
        self._open: Counter[int] = Counter()
        self._task: asyncio.Task[None] | None = None
        self._looked_at: datetime | None = None

    @contextlib.contextmanager
    def room(self, user_id: int) -> Iterator[None]:
        """From before a stream begins, because afterwards nobody can be refused, until it is over."""
        if self._open.total() >= WATCHERS_MAX or self._open[user_id] >= OF_ONE_USER:
            raise Busy("too many streams are open; close some")
        self._open[user_id] += 1
        try:
            yield
        finally:
            self._open[user_id] -= 1
            self._open += Counter()  # forgets who has none

    async def watch(self, watcher: Watcher) -> AsyncIterator[list[Job]]:
        """What changed, at most twice a second; an empty list now and then, to look around."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._looked_at = None
            self._task = asyncio.create_task(self._run())
        try:
            while not watcher.is_gone:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(watcher.ring.wait(), 10)
                watcher.ring.clear()
                news, watcher.news = watcher.news, {}
                watcher.sent |= {job.id: print_of(job) for job in news.values()}
                yield list(news.values())
        finally:
            self._watchers.discard(watcher)

    async def _run(self) -> None:
        while self._watchers:
            try:
                await self._look()
            except Exception as error:  # noqa: BLE001  streams outlive a database that is away for a while
                emit("loop.failed", loop="hub", error=str(error))
            await asyncio.sleep(EVERY_S)

    async def _look(self) -> None:
        watchers = list(self._watchers)
        now = await self._db.run(jobs.clock)
        found = await self._db.run(
            jobs.watched,
            sorted({one for watcher in watchers for one in (watcher.job_id, watcher.also) if one is not None}),
            sorted({w.owner_id for w in watchers if w.job_id is None and w.owner_id is not None}),
            everybody=any(w.job_id is None and w.owner_id is None for w in watchers),
            since=self._since(watchers, now),
        )
        for watcher in watchers:
            for job in found:
                watcher.offer(job)
            if watcher.job_id is not None and all(job.id != watcher.job_id for job in found):
                watcher.is_gone = True
                watcher.ring.set()
        self._looked_at = now

    def _since(self, watchers: list[Watcher], now: datetime) -> datetime:
        """From the last look on; for those who have just come, from where they say they were."""
        since = (self._looked_at or now) - OVERLAP
        for watcher in watchers:
            watcher.since = watcher.since or now
            if watcher.is_new:
                since = min(since, watcher.since)
            watcher.is_new = False
        return since
