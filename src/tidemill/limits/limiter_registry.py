"""The limiters that one process uses."""

import asyncio
from collections.abc import Mapping

from tidemill.core.errors import InvalidInput
from tidemill.core.kinds import Handler
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_client import MAX_BLOCK_WAIT_S, LimiterClient
from tidemill.limits.limiter_permit import LimiterPermit
from tidemill.limits.limiter_queue import LimiterQueue
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MAX_LIMITER_QUEUES = 1_000  # above this, queues without waiters are dropped


class LimiterRegistry:
    """Queues by limiter and member, each created at its first use."""

    def __init__(
        self, db: Database, declared: Mapping[str, Limiter], *, worker: str, child: int, lease_seconds: float
    ) -> None:
        self._client = LimiterClient(db, declared, worker=worker, child=child, lease_seconds=lease_seconds)
        self._queues: dict[tuple[str, str], LimiterQueue] = {}
        self.loop: asyncio.AbstractEventLoop | None = None  # where permits of handlers in threads wait

    def get_or_create_queue(self, name: str, key: str = "") -> LimiterQueue:
        queue = self._queues.get((name, key))
        if queue is None:
            if name not in self._client.declared:
                known = ", ".join(sorted(self._client.declared)) or "none"
                raise InvalidInput(f'Unknown limiter "{name}". Declared limiters: {known}.')
            if len(self._queues) >= MAX_LIMITER_QUEUES:
                self._drop_idle_queues()
            queue = self._queues[name, key] = LimiterQueue(self._client, self._client.declared[name], key)
        return queue

    def permit(self, name: str, key: str = "") -> LimiterPermit:
        """Return a permit for a call inside a handler."""
        return LimiterPermit(self, name, key)

    def is_handler_blocked(self, handler: Handler) -> bool:
        """Return whether the limiter of a handler is blocked, so that claiming its items is useless."""
        return handler.limiter is not None and handler.limit_by is None and self.is_limiter_blocked(handler.limiter)

    def is_limiter_blocked(self, name: str) -> bool:
        """Return whether a limiter admits no call for a while, as far as this process knows."""
        queue = self._queues.get((name, ""))
        if queue is None or queue.remaining_block_s() <= MAX_BLOCK_WAIT_S:
            return False
        queue.recheck_block()
        return True

    def get_rate_per_s(self, handler: Handler) -> float | None:
        """Return the calls per second that a handler's limiter allows over all workers; None if it has no rate."""
        if handler.limiter is None or handler.limit_by is not None or handler.limiter not in self._client.declared:
            return None
        queue = self._queues.get((handler.limiter, ""))
        return self._client.declared[handler.limiter].permits_per_s if queue is None else queue.rate_per_s

    def cancel_waiters(self, owner: object) -> None:
        for queue in self._queues.values():
            if queue.waiter_count:
                queue.cancel_waiters(owner)

    def count_waiters(self) -> dict[str, int]:
        """Return the number of waiting items of this process by limiter."""
        waiters: dict[str, int] = {}
        for (name, _), queue in self._queues.items():
            waiters[name] = waiters.get(name, 0) + queue.waiter_count
        return waiters

    def emit_limiter_usage(self) -> None:
        """Emit the number of calls since the last report, and how long they waited."""
        usage: dict[str, tuple[int, float]] = {}
        for (name, _), queue in self._queues.items():
            permits, waited = usage.get(name, (0, 0.0))
            usage[name] = permits + queue.unreported_permits, waited + queue.unreported_wait_s
            queue.unreported_permits, queue.unreported_wait_s = 0, 0.0
        for name, (permits, waited) in usage.items():
            if permits:
                emit("limiter.taken", limiter=name, permits=permits, waited_s=round(waited, 3))

    async def close(self) -> None:
        """Report the rest of the usage and wait for pending requests."""
        self.emit_limiter_usage()
        await self._client.wait_for_background_tasks()

    def _drop_idle_queues(self) -> None:
        self._queues = {
            key: queue for key, queue in self._queues.items() if not queue.is_idle or queue.remaining_block_s()
        }
