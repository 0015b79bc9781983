"""One look at the database for all who ask for the same at the same time.

Many people watch one job, and a service that falls behind would be asked for the same again and again. Whoever asks
while an answer is being fetched shares the next one with all who come meanwhile: nobody gets an answer that is older
than their question, and however many ask, one look is under way and one waits.

What the routes share, and how they ask for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, Protocol, TypeVar
from uuid import UUID

from fastapi import Depends, Request

from tidemill.config import Settings
from tidemill.core.job import TimeSliceResult
from tidemill.distributions.use_cases import DistributionUseCases
from tidemill.enrichment.use_cases import ServiceJobUseCases
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.imports.use_cases import ImportUseCases
from tidemill.jobs.job_feed import JobFeed
from tidemill.jobs.queries import PendingCountCache
from tidemill.jobs.staged_files import StagedFiles
from tidemill.rest.rate_limit import RequestRateLimiter
from tidemill.rest.responses import StreamSlots
from tidemill.store.database import Database
from tidemill.store.sessions import SessionLimits
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.watches.scanner import WatchScanner

T = TypeVar("T")


class RequestCoalescer(Generic[T]):
    """By key, which says all that the answer depends on: also for whom it is."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """The answer; shielded, for whoever asked first may hang up while others still wait."""
        look = self._waiting.get(key)
        if look is None:
            before = self._under_way.get(key)
            look = asyncio.create_task(self._fetch_after(key, before, fetch))
            (self._under_way if before is None else self._waiting)[key] = look
        return await asyncio.shield(look)

    async def _fetch_after(
        self, key: Hashable, running: asyncio.Task[T] | None, fetch: Callable[[], Awaitable[T]]
    ) -> T:
        if running is not None:
            await asyncio.wait([running])
            self._under_way[key] = self._waiting.pop(key)
        try:
            return await fetch()
        finally:
            if key not in self._waiting:  # else that one takes the place
                del self._under_way[key]


class OnDemandPool(Protocol):
    """Children that work when they are asked to."""

    async def kickoff(self, job_id: UUID, kind: str, seconds: float) -> TimeSliceResult: ...


@dataclass
class ApiContext:
    """One API process."""

    db: Database
    settings: Settings
    blobs: BlobStore
    rate_limiter: RequestRateLimiter
    resources: ResourceRegistry
    imports: ImportUseCases
    distributions: DistributionUseCases
    watch_scanner: WatchScanner
    service_jobs: ServiceJobUseCases
    on_demand_pool: OnDemandPool | None = None
    normalizers: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    session_limits: SessionLimits = field(init=False)
    job_feed: JobFeed = field(init=False)
    staged_files: StagedFiles = field(init=False)
    coalescer: RequestCoalescer[bytes] = field(default_factory=RequestCoalescer)
    pending_counts: PendingCountCache = field(init=False)
    stream_slots: StreamSlots = field(init=False)

    def __post_init__(self) -> None:
        self.job_feed = JobFeed(self.db)
        self.staged_files = StagedFiles(self.db, self.blobs)
        self.pending_counts = PendingCountCache(self.db)
        self.stream_slots = StreamSlots(self.settings.export_streams)
        self.session_limits = SessionLimits(self.settings.session_idle_s, self.settings.session_max_s)


def get_context(request: Request) -> ApiContext:
    found: ApiContext = request.app.state.context
    return found


async def _provide_context(request: Request) -> ApiContext:  # async, or it would be called in a thread: 0.3 ms
    return get_context(request)


async def _provide_database(request: Request) -> Database:
    return get_context(request).db


ContextDep = Annotated[ApiContext, Depends(_provide_context)]
DatabaseDep = Annotated[Database, Depends(_provide_database)]
