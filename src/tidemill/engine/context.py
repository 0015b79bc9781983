"""The objects that the loops of one process share."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from uuid import UUID

from tidemill.config import Settings
from tidemill.core.decide import describe_exception
from tidemill.core.input_source import InputSourceOpener, SourceDownloader
from tidemill.core.kinds import Handler, HandlerLookup
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.concurrency import AdaptiveSemaphore, SharedExclusiveLock
from tidemill.engine.learned_columns import LearnedColumnsCache
from tidemill.engine.sizing import Sizing
from tidemill.engine.verdicts import TracebackCapture
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_permit import LimiterRegistry
from tidemill.runtime import FindKindHooks
from tidemill.store import job_lifecycle
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MAX_STOP_POLL_S = 1.0
StopCallback = Callable[[], None]


class JobStopMonitor:
    """Polls the jobs of running batches with one query per interval, and no query while no batch runs."""

    def __init__(self, db: Database, poll_s: float) -> None:
        self._db = db
        self._poll_s = min(poll_s, MAX_STOP_POLL_S)
        self._callbacks: dict[UUID, list[StopCallback]] = {}
        self._polling: asyncio.Task[None] | None = None

    @property
    def is_watching(self) -> bool:
        """Whether a batch runs whose job has not stopped."""
        return bool(self._callbacks)

    @contextlib.contextmanager
    def watch_job(self, job_id: UUID, on_stop: StopCallback) -> Iterator[None]:
        """Call ``on_stop`` at most once if the job may not run any more while the context is open."""
        self._callbacks.setdefault(job_id, []).append(on_stop)
        if self._polling is None or self._polling.done():
            self._polling = asyncio.create_task(self._poll_until_unused())
        try:
            yield
        finally:
            waiting = self._callbacks.get(job_id, [])
            if on_stop in waiting:
                waiting.remove(on_stop)
                if not waiting:
                    del self._callbacks[job_id]

    async def _poll_until_unused(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            if not self._callbacks:
                return
            try:
                stopped = await self._db.read(job_lifecycle.list_stopped_jobs, list(self._callbacks))
            except Exception as error:  # noqa: BLE001  the database may be available again at the next poll
                emit("loop.failed", loop="job stop monitor", error=describe_exception(error))
                continue
            for job_id in stopped:
                for on_stop in self._callbacks.pop(job_id, []):
                    on_stop()


SPARE_LANES = 1  # lanes of a child that an owner who uses all the others cannot use
INGESTERS = 2  # of a child, each for sources of another owner
MAX_HANDLER_THREADS = 128  # their stacks count against the memory limit


@dataclass
class EngineContext:
    """The context of one process that runs items: database, handlers, limits, threads, and whether it must stop."""

    db: Database
    settings: Settings
    handlers: HandlerLookup
    open_source: InputSourceOpener
    fetch_source: SourceDownloader
    worker: str
    shared_state: SharedState
    find_kind_hooks: FindKindHooks
    declared_limiters: Mapping[str, Limiter] = field(default_factory=dict)
    redact_traceback: Callable[[str], str] | None = None
    isolation_lock: SharedExclusiveLock = field(default_factory=SharedExclusiveLock)
    semaphore_by_kind: dict[str, AdaptiveSemaphore] = field(default_factory=dict)
    thread_pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    learned_columns: LearnedColumnsCache = field(default_factory=LearnedColumnsCache)
    is_stopping: bool = False
    missing_requirements: set[str] = field(default_factory=set)  # of jobs that this worker leaves to others
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    grace_ends_at: float | None = None  # monotonic: when running items are cancelled
    has_abandoned_thread: bool = False  # a handler's thread could not be cancelled and runs until the process ends
    sizing: Sizing = field(init=False)
    job_stops: JobStopMonitor = field(init=False)
    limiter_registry: LimiterRegistry = field(init=False)
    tracebacks: TracebackCapture = field(init=False)

    def __post_init__(self) -> None:
        self.sizing = Sizing(self.settings)
        self.job_stops = JobStopMonitor(self.db, self.settings.poll_ms / 1000)
        self.tracebacks = TracebackCapture(is_enabled=self.settings.tracebacks, redact=self.redact_traceback)
        self.limiter_registry = LimiterRegistry(
            self.db,
            self.declared_limiters,
            worker=self.worker,
            child=os.getpid(),
            lease_seconds=self.settings.lock_floor_ms / 1000,
        )

    @property
    def is_grace_over(self) -> bool:
        return self.grace_ends_at is not None and time.monotonic() >= self.grace_ends_at

    def reset_for_slice(self, seconds: float) -> None:
        self.is_stopping, self.grace_ends_at = False, None
        self.stop_requested.clear()
        self.sizing.slice_ends_at = time.monotonic() + seconds

    def request_stop(self, grace: float) -> None:
        """Start no further item; cancel the running ones after ``grace`` seconds."""
        if not self.is_stopping:
            self.is_stopping, self.grace_ends_at = True, time.monotonic() + grace
            self.stop_requested.set()

    async def sleep_unless_stopping(self, seconds: float) -> None:
        """Sleep until the time is over or the process must stop."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stop_requested.wait()

    async def close_handlers(self) -> None:
        """Close the handlers after the last item."""
        for handler in self.handlers.list_created_handlers():
            if handler.close is not None:
                await handler.close()

    def check_and_record_missing_requirements(self, kind: str, requires: Sequence[str]) -> bool:
        """Return whether this worker declares what a job requires; if not, its next queries skip such jobs."""
        missing = set(requires).difference(self.handlers.get(kind).provides) if requires else None
        if not missing:
            return True
        self.missing_requirements |= missing
        return False

    def get_semaphore(self, handler: Handler) -> AdaptiveSemaphore:
        """Return the concurrency slots of a kind, shared by the lanes of this process."""
        semaphore = self.semaphore_by_kind.get(handler.kind)
        if semaphore is None:
            semaphore = AdaptiveSemaphore(handler.kind, self._max_concurrency(handler))
            self.semaphore_by_kind[handler.kind] = semaphore
        return semaphore

    def get_thread_pool(self, handler: Handler) -> ThreadPoolExecutor:
        if handler.kind not in self.thread_pools:
            self.limiter_registry.loop = asyncio.get_running_loop()  # permits in threads wait in this event loop
            self.thread_pools[handler.kind] = ThreadPoolExecutor(self._max_concurrency(handler), handler.kind)
        return self.thread_pools[handler.kind]

    def _max_concurrency(self, handler: Handler) -> int:
        """Return how many calls of a handler may run at a time: one batch per lane, one thread per blocking item."""
        if handler.is_batch:
            return self.settings.worker_lanes + SPARE_LANES
        return handler.concurrency if handler.mode == "async" else min(handler.concurrency, MAX_HANDLER_THREADS)
