"""Admission of calls: when a call of a handler may start, and how its response affects the next calls."""

import asyncio
import contextlib
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from itertools import chain, zip_longest

from tidemill.core.batch import Lease
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Outcome, Retry, Wait
from tidemill.engine.concurrency import AdaptiveSemaphore
from tidemill.engine.context import EngineContext
from tidemill.limits.limiter_permit import RateLimited, ThrottleReports, normalize_member_key
from tidemill.limits.limiter_queue import LimiterQueue

LIMIT_BY_KEY_ERROR = "limit_by must return a string: the member of the limiter that the item counts against"


class CallPermit:
    """Permission for one call of a handler. Call ``report_outcome`` with its outcome, then ``release``."""

    __slots__ = ("_queue", "_semaphore", "started_at")

    def __init__(self, semaphore: AdaptiveSemaphore, queue: LimiterQueue | None) -> None:
        self._semaphore = semaphore
        self._queue = queue
        self.started_at = time.monotonic()

    def report_outcome(self, outcome: Outcome, now: float, reports: ThrottleReports) -> float:
        """Record an outcome; return the seconds for which its slot must not start another call.

        A throttled outcome is reported to the handler's limiter if it has one, else to the concurrency controller,
        unless a permit inside the handler has reported it.
        """
        try:
            if not isinstance(outcome, Retry) or not outcome.throttled:
                if not isinstance(outcome, Wait):
                    self._semaphore.record_outcome(outcome, self.started_at, now)
                return 0.0
            if reports.has_reported(outcome):
                return 0.0
            if self._queue is not None:
                self._queue.block_and_report_throttled(outcome.after, self.started_at)
                return 0.0
            self._semaphore.record_outcome(outcome, self.started_at, now)
            after = outcome.after
            is_number = isinstance(after, int | float) and math.isfinite(after)
            return self._semaphore.slot_cooldown_s(after if is_number else None)
        except Exception:  # noqa: BLE001  attributes of a user's outcome may raise anything; the decision reports it
            return 0.0

    def release(self) -> None:
        if self._queue is not None:
            self._queue.release_slot(time.monotonic() - self.started_at)


class Admission:
    """Admits the calls for one leased batch, per item or for the whole batch.

    A call needs a concurrency slot of its kind, a minimum gap after the previous start while the concurrency is
    reduced, and a permit of the handler's limiter if it has one.
    """

    def __init__(self, context: EngineContext, handler: Handler, lease: Lease) -> None:
        self.semaphore = context.get_semaphore(handler)
        self.max_slots = 1 if lease.isolated else self.semaphore.max_slots
        self.is_closed = context.is_stopping
        self._closed = asyncio.Event()
        self._context = context
        self._limiters = context.limiter_registry
        self._limiter_name, self._limit_by = handler.limiter, handler.limit_by
        self._queue = None if handler.limiter is None else self._limiters.get_or_create_queue(handler.limiter)
        self._prefetches_permits = self._queue is not None and self._limit_by is None and not handler.is_batch
        self._job_limiter = lease.limiter
        self._job_id = lease.job_id
        self.owner_id = lease.owner_id
        self.job_stopped_at: float | None = None  # monotonic: when the job was paused, cancelled, failed or deleted

    @contextlib.asynccontextmanager
    async def admit_calls(self) -> AsyncIterator[None]:
        """Admit calls within the context. When the process or the job must stop, every waiting call is cancelled."""
        watcher = asyncio.create_task(self._cancel_calls_on_process_stop())
        if self._prefetches_permits and self._queue is not None:
            self._queue.begin_prefetching()
        try:
            with self._context.job_stops.watch_job(self._job_id, self._cancel_waiting_calls_of_stopped_job):
                yield
        finally:
            watcher.cancel()
            if self._prefetches_permits and self._queue is not None:
                self._queue.end_prefetching()

    def interleave_items_by_member(self, items: Sequence[Item]) -> Sequence[Item]:
        """Reorder items if the limiter has members: the first item of each member, then the second, and so on."""
        if self._limit_by is None:
            return items
        by_member: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            try:
                key = "" if item.defect is not None else self._get_limiter_member_key(item)
            except Exception:  # noqa: BLE001  it becomes the item's error when the item is started
                key = ""
            by_member[key].append(item)
        return [item for item in chain.from_iterable(zip_longest(*by_member.values())) if item is not None]

    async def acquire_slot(self) -> bool:
        """Acquire a concurrency slot, waiting if necessary; return False if no more calls may start."""
        return not self.is_closed and await self.semaphore.acquire(self, self.owner_id)

    async def wait_for_start(self) -> bool:
        """Wait for the minimum gap between two starts; return False if no more calls may start."""
        await self.sleep_unless_closed(self.semaphore.reserve_start(time.monotonic()))
        return not self.is_closed

    async def sleep_unless_closed(self, seconds: float) -> None:
        """Sleep, but not after admission was closed."""
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._closed.wait()

    def admit_without_limiter(self) -> CallPermit | None:
        """Return permission for a call if the handler has no limiter. A coroutine per item would cost 0.2 µs."""
        return CallPermit(self.semaphore, None) if self._queue is None else None

    async def acquire_call_permit(self, item: Item | None = None) -> CallPermit | RateLimited | None:
        """Acquire permission for the call for one item, or for a whole batch if ``item`` is None.

        Returns:
            RateLimited if the item's member of the limiter would admit it too late; other items may still start. None
            if no call may start for a longer time: items that have not started are requeued.

        Raises:
            Exception: The user's ``limit_by`` function failed.
        """
        queue = self._queue
        if queue is None:
            return CallPermit(self.semaphore, None)
        if item is None or self._limit_by is None:
            wait = await queue.acquire_or_get_wait_s(self)
        else:
            queue = self._limiters.get_or_create_queue(self._limiter_name or "", self._get_limiter_member_key(item))
            wait = await queue.acquire_or_get_wait_s(
                self, max_wait_s=self._context.sizing.get_target_batch_s(), counts_queue=True
            )
            if wait and not self._context.is_stopping:
                return RateLimited(queue, wait)
        if wait is None:
            return CallPermit(self.semaphore, queue)
        self.cancel_waiting_calls()
        return None

    def is_job_limiter_blocked(self, outcome: RateLimited) -> bool:
        """Return whether the limiter that blocked a permit inside the handler is the limiter of the whole job."""
        return outcome.limiter is not None and outcome.limiter == self._job_limiter

    @property
    def is_job_stopped(self) -> bool:
        return self.job_stopped_at is not None

    def end_waits_for_slot_and_start(self) -> None:
        """End all waits for a slot or for the next start, because no items are left to start."""
        self.is_closed = True
        self._closed.set()
        self.semaphore.cancel_waiters(self)

    def cancel_waiting_calls(self) -> None:
        """Start no more calls, including those that wait for a permit."""
        self.end_waits_for_slot_and_start()
        if self._queue is not None:
            self._limiters.cancel_waiters(self)

    def _cancel_waiting_calls_of_stopped_job(self) -> None:
        self.job_stopped_at = time.monotonic()
        self.cancel_waiting_calls()

    async def _cancel_calls_on_process_stop(self) -> None:
        await self._context.stop_requested.wait()
        self.cancel_waiting_calls()

    def _get_limiter_member_key(self, item: Item) -> str:
        return normalize_member_key(None if self._limit_by is None else self._limit_by(item), LIMIT_BY_KEY_ERROR)
