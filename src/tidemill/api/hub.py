"""Watching jobs: one look at the database twice a second for all who watch, and only while somebody does."""

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
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


@dataclass(eq=False)
class Watcher:
    """One stream: a job, or a whole tab with the jobs of an owner, None for all."""

    job_id: UUID | None = None
    owner_id: int | None = None
    sent: dict[UUID, str] = field(default_factory=dict)
    news: dict[UUID, Job] = field(default_factory=dict)
    since: datetime | None = None
    is_gone: bool = False
    ring: asyncio.Event = field(default_factory=asyncio.Event)

    def cares(self, job: Job) -> bool:
        if self.job_id is not None:
            return job.id == self.job_id
        return self.owner_id is None or job.owner_id == self.owner_id

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
        self._task: asyncio.Task[None] | None = None
        self._looked_at: datetime | None = None

    def check_room(self) -> None:
        """Before the answer begins: afterwards nothing can be refused."""
        if len(self._watchers) >= WATCHERS_MAX:
            raise Busy("too many streams are open here")

    async def watch(self, watcher: Watcher) -> AsyncIterator[list[Job]]:
        """What changed, at most twice a second; an empty list now and then, to look around."""
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
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
        tabs = [watcher for watcher in watchers if watcher.job_id is None]
        owners = None if any(w.owner_id is None for w in tabs) else sorted({w.owner_id or 0 for w in tabs})
        now = await self._db.run(jobs.clock)
        since = min((self._looked_at or now) - OVERLAP, *(w.since for w in tabs if w.since), now)
        job_ids = {watcher.job_id for watcher in watchers if watcher.job_id is not None}
        found = await self._db.run(jobs.watched, sorted(job_ids), owners, tabs=bool(tabs), since=since)
        for watcher in watchers:
            watcher.since = None
            for job in found:
                watcher.offer(job)
            if watcher.job_id is not None and all(job.id != watcher.job_id for job in found):
                watcher.is_gone = True
                watcher.ring.set()
        self._looked_at = now
