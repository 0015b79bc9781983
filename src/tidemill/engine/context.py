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
from tidemill.domain.handler import Handler
from tidemill.domain.limits import Limiter
from tidemill.domain.ports import Handlers, OpenSource
from tidemill.engine.adapt.chunk import ChunkSize
from tidemill.engine.adapt.pace import Pace
from tidemill.engine.columns import ColumnsByJob
from tidemill.engine.crew import Crew
from tidemill.engine.gate import Gate
from tidemill.engine.limits import ProcessLimits
from tidemill.engine.logbook import Logbook
from tidemill.engine.strain import Machine
from tidemill.store.database import Database

MAX_THREADS = 128  # their stacks count against the memory limit


@dataclass
class Context:
    """One process at work for a worker."""

    db: Database
    settings: Settings
    handlers: Handlers
    open_source: OpenSource
    worker: str
    book: Logbook
    gate: Gate = field(default_factory=Gate)
    paces: dict[str, Pace] = field(default_factory=dict)
    crews: dict[str, Crew] = field(default_factory=dict)
    stop_at: float | None = None  # monotonic: when items in hand are let go
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    slice_ends_at: float | None = None  # monotonic: of a child that works only while it is asked to
    pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    threads_left: bool = False  # a handler in a thread was let go of: it runs on until the process ends
    columns: ColumnsByJob = field(default_factory=ColumnsByJob)
    limiters: Mapping[str, Limiter] = field(default_factory=dict)
    limits: ProcessLimits = field(init=False)
    machine: Machine = field(init=False)
    chunk: ChunkSize = field(init=False)

    def __post_init__(self) -> None:
        settings = self.settings
        self.machine = Machine(settings)
        seconds = settings.lock_floor_ms / 1000
        self.limits = ProcessLimits(self.db, self.limiters, worker=self.worker, child=os.getpid(), seconds=seconds)
        self.chunk = ChunkSize.start(
            low=settings.ingest_min_rows,
            high=settings.ingest_max_rows,
            good_ms=settings.db_p50_ms,
            bad_ms=settings.db_p95_ms,
        )

    @property
    def stopping(self) -> bool:
        return self.stop_at is not None

    @property
    def out_of_grace(self) -> bool:
        return self.stop_at is not None and time.monotonic() >= self.stop_at

    @property
    def slice_ms(self) -> float:
        """How long a claimed batch should take: of a slice, not more than is left."""
        target = float(self.settings.worker_target_slice_ms)
        if self.slice_ends_at is None:
            return target
        return min(target, max(0.0, self.slice_ends_at - time.monotonic()) * 1000)

    def begin_slice(self, seconds: float) -> None:
        self.stop_at = None
        self.stopped.clear()
        self.slice_ends_at = time.monotonic() + seconds

    def stop(self, grace: float) -> None:
        if self.stop_at is None:
            self.stop_at = time.monotonic() + grace
            self.stopped.set()

    async def rest(self, seconds: float) -> None:
        """So long, or until the process is to stop."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.stopped.wait()

    async def close(self) -> None:
        """Nothing runs any more: handlers let go of what they hold."""
        for handler in self.handlers.all():
            if handler.close is not None:
                await handler.close()

    def pace(self, kind: str) -> Pace:
        return self.paces.get(kind, Pace())

    def learn(self, kind: str, items: int, seconds: float) -> None:
        self.paces[kind] = self.pace(kind).observe(items=items, seconds=seconds)

    def crew(self, handler: Handler) -> Crew:
        """The lanes of a process share a handler's concurrency."""
        if handler.kind not in self.crews:
            self.crews[handler.kind] = Crew(handler.kind, self.width(handler))
        return self.crews[handler.kind]

    def width(self, handler: Handler) -> int:
        """How many items of a kind may be in hand at a time: a blocking one needs a thread for each.

        Of batches, every lane may have one.
        """
        if handler.is_batch:
            return self.settings.worker_lanes
        return handler.concurrency if handler.mode == "async" else min(handler.concurrency, MAX_THREADS)

    def claim_size(self, handler: Handler) -> int:
        """How many items of a kind are claimed at once, as things are."""
        settings, strain = self.settings, self.machine.strain()
        least = settings.claim_min
        if not handler.is_batch:
            # Together the lanes fill the handler's concurrency. With fewer at a time, each item takes a larger part of
            # the batch's time, so that the next claim would be smaller still, and in the end of one item.
            least = min(settings.claim_max, max(least, math.ceil(self.crew(handler).places / settings.worker_lanes)))
        most = self._most_items(handler)
        size = self.pace(handler.kind).claim_size(
            slice_ms=self.slice_ms * strain.time,
            safety=settings.safety_factor,
            first=self._first_claim(handler),
            low=min(least, most),
            high=most,
        )
        return max(settings.claim_min, int(size * strain.room))

    def _most_items(self, handler: Handler) -> int:
        """What a batch can have, and a limiter can let begin in a slice: the rest would only be kept from others."""
        most, pace = self.batch_size(handler), self.limits.pace(handler)
        if pace is None or handler.is_batch:
            return most
        begun = pace * self.settings.worker_target_slice_ms / 1000 * self.settings.safety_factor
        return max(self.settings.claim_min, min(most, int(begun)))

    def batch_size(self, handler: Handler) -> int:
        """The most items of a batch."""
        return handler.batch_size or self.settings.claim_max

    def _first_claim(self, handler: Handler) -> int:
        """While nobody knows how long items take. A set-based handler must fit into a slice whole."""
        settings = self.settings
        if handler.is_batch:
            return self.batch_size(handler) if self.slice_ends_at is None else settings.claim_min
        return max(settings.claim_min, handler.concurrency)

    def threads(self, handler: Handler) -> ThreadPoolExecutor:
        if handler.kind not in self.pools:
            self.pools[handler.kind] = ThreadPoolExecutor(self.width(handler), handler.kind)
        return self.pools[handler.kind]

    def lease_seconds(self, kind: str, items: int) -> float:
        settings = self.settings
        floor, cap = settings.lock_floor_ms / 1000, settings.lock_cap_ms / 1000
        return self.pace(kind).lease_seconds(items=items, floor=floor, cap=cap)
