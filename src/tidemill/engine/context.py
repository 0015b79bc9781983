"""What the loops of one process share."""

import asyncio
import contextlib
import math
import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tidemill.config import Settings
from tidemill.core.input_source import InputSourceOpener
from tidemill.core.kinds import Handler, HandlerLookup
from tidemill.engine.adaptive.sizing import ChunkSize, ItemPace
from tidemill.engine.adaptive.system_load import SystemLoadMonitor
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.concurrency import AdaptiveSemaphore, SharedExclusiveLock
from tidemill.engine.learned_columns import LearnedColumnsCache
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_registry import LimiterRegistry
from tidemill.store.database import Database

MAX_HANDLER_THREADS = 128  # their stacks count against the memory limit


@dataclass
class EngineContext:
    """One process at work for a worker."""

    db: Database
    settings: Settings
    handlers: HandlerLookup
    open_source: InputSourceOpener
    worker: str
    shared_state: SharedState
    isolation_lock: SharedExclusiveLock = field(default_factory=SharedExclusiveLock)
    pace_by_kind: dict[str, ItemPace] = field(default_factory=dict)
    semaphore_by_kind: dict[str, AdaptiveSemaphore] = field(default_factory=dict)
    grace_ends_at: float | None = None  # monotonic: when items in hand are let go
    stop_requested: asyncio.Event = field(default_factory=asyncio.Event)
    slice_ends_at: float | None = None  # monotonic: of a child that works only while it is asked to
    thread_pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    has_abandoned_thread: bool = False  # a handler in a thread was let go of: it runs on until the process ends
    learned_columns: LearnedColumnsCache = field(default_factory=LearnedColumnsCache)
    declared_limiters: Mapping[str, Limiter] = field(default_factory=dict)
    limiter_registry: LimiterRegistry = field(init=False)
    load_monitor: SystemLoadMonitor = field(init=False)
    chunk_size: ChunkSize = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.load_monitor = SystemLoadMonitor(settings)
        seconds = settings.lock_floor_ms / 1000
        self.limiter_registry = LimiterRegistry(
            self.db, self.declared_limiters, worker=self.worker, child=os.getpid(), lease_seconds=seconds
        )
        self.chunk_size = ChunkSize.initial(
            min_rows=settings.ingest_min_rows,
            max_rows=settings.ingest_max_rows,
            good_ms=settings.db_p50_ms,
            bad_ms=settings.db_p95_ms,
        )

    @property
    def is_stopping(self) -> bool:
        return self.grace_ends_at is not None

    @property
    def is_grace_over(self) -> bool:
        return self.grace_ends_at is not None and time.monotonic() >= self.grace_ends_at

    @property
    def target_batch_ms(self) -> float:
        """How long a claimed batch should take: of a slice, not more than is left."""
        target = float(self.settings.worker_target_slice_ms)
        if self.slice_ends_at is None:
            return target
        return min(target, max(0.0, self.slice_ends_at - time.monotonic()) * 1000)

    def start_slice(self, seconds: float) -> None:
        self.grace_ends_at = None
        self.stop_requested.clear()
        self.slice_ends_at = time.monotonic() + seconds

    def stop(self, grace: float) -> None:
        if self.grace_ends_at is None:
            self.grace_ends_at = time.monotonic() + grace
            self.stop_requested.set()

    async def sleep_until_stop(self, seconds: float) -> None:
        """So long, or until the process is to stop."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stop_requested.wait()

    async def close_handlers(self) -> None:
        """Nothing runs any more: handlers let go of what they hold."""
        for handler in self.handlers.list_made():
            if handler.close is not None:
                await handler.close()

    def get_pace(self, kind: str) -> ItemPace:
        return self.pace_by_kind.get(kind, ItemPace())

    def record_pace(self, kind: str, items: int, seconds: float) -> None:
        self.pace_by_kind[kind] = self.get_pace(kind).observe(items=items, seconds=seconds)

    def get_semaphore(self, handler: Handler) -> AdaptiveSemaphore:
        """The lanes of a process share a handler's concurrency."""
        if handler.kind not in self.semaphore_by_kind:
            self.semaphore_by_kind[handler.kind] = AdaptiveSemaphore(handler.kind, self.max_in_flight(handler))
        return self.semaphore_by_kind[handler.kind]

    def max_in_flight(self, handler: Handler) -> int:
        """How many items of a kind may be in hand at a time: a blocking one needs a thread for each.

        Of batches, every lane may have one.
        """
        if handler.is_batch:
            return self.settings.worker_lanes
        return handler.concurrency if handler.mode == "async" else min(handler.concurrency, MAX_HANDLER_THREADS)

    def claim_size(self, handler: Handler) -> int:
        """How many items of a kind are claimed at once, as things are."""
        settings, strain = self.settings, self.load_monitor.read_load()
        least = settings.claim_min
        if not handler.is_batch:
            # Together the lanes fill the handler's concurrency. With fewer at a time, each item takes a larger part of
            # the batch's time, so that the next claim would be smaller still, and in the end of one item.
            least = min(
                settings.claim_max, max(least, math.ceil(self.get_semaphore(handler).slots / settings.worker_lanes))
            )
        most = self._max_claim_items(handler)
        size = self.get_pace(handler.kind).claim_size(
            slice_ms=self.target_batch_ms * strain.claim_time_factor,
            safety=settings.safety_factor,
            first=self._initial_claim_size(handler),
            low=min(least, most),
            high=most,
        )
        return max(settings.claim_min, int(size * strain.claim_size_factor))

    def _max_claim_items(self, handler: Handler) -> int:
        """What a batch can have, and a limiter can let begin in a slice: the rest would only be kept from others."""
        most, pace = self.max_batch_items(handler), self.limiter_registry.get_rate_per_s(handler)
        if pace is None or handler.is_batch:
            return most
        begun = pace * self.settings.worker_target_slice_ms / 1000 * self.settings.safety_factor
        return max(self.settings.claim_min, min(most, int(begun)))

    def max_batch_items(self, handler: Handler) -> int:
        """The most items of a batch."""
        return handler.batch_size or self.settings.claim_max

    def _initial_claim_size(self, handler: Handler) -> int:
        """While nobody knows how long items take. A set-based handler must fit into a slice whole."""
        settings = self.settings
        if handler.is_batch:
            return self.max_batch_items(handler) if self.slice_ends_at is None else settings.claim_min
        return max(settings.claim_min, handler.concurrency)

    def get_thread_pool(self, handler: Handler) -> ThreadPoolExecutor:
        if handler.kind not in self.thread_pools:
            self.thread_pools[handler.kind] = ThreadPoolExecutor(self.max_in_flight(handler), handler.kind)
        return self.thread_pools[handler.kind]

    def lease_seconds(self, kind: str, items: int) -> float:
        settings = self.settings
        floor, cap = settings.lock_floor_ms / 1000, settings.lock_cap_ms / 1000
        return self.get_pace(kind).lease_seconds(items=items, floor=floor, cap=cap)
