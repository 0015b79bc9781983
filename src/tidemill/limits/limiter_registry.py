"""All the limiters that one process asks."""

import asyncio
from collections.abc import Mapping

from tidemill.core.errors import InvalidInput
from tidemill.core.kinds import Handler
from tidemill.limits.admission import LimiterAdmission, LimiterPermit
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_client import MAX_BLOCK_WAIT_S, LimiterClient
from tidemill.limits.limiter_queue import LimiterQueue
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

MAX_LIMITER_QUEUES = 1_000  # those that nobody stands in are forgotten beyond


class LimiterRegistry:
    """Lines by limiter and member, each made when somebody comes."""

    def __init__(
        self, db: Database, declared: Mapping[str, Limiter], *, worker: str, child: int, lease_seconds: float
    ) -> None:
        self._client = LimiterClient(db, declared, worker=worker, child=child, lease_seconds=lease_seconds)
        self._queues: dict[tuple[str, str], LimiterQueue] = {}
        self.loop: asyncio.AbstractEventLoop | None = None

    def make_admission(self, handler: Handler) -> LimiterAdmission | None:
        """Where the items of a handler stand in line, if it names a limiter."""
        self.loop = asyncio.get_running_loop()
        return None if handler.limiter is None else LimiterAdmission(self, handler)

    def get_queue(self, name: str, key: str = "") -> LimiterQueue:
        line = self._queues.get((name, key))
        if line is None:
            if name not in self._client.declared:
                known = ", ".join(sorted(self._client.declared)) or "none is declared"
                raise InvalidInput(f"there is no limiter {name!r}; declared are: {known}")
            if len(self._queues) >= MAX_LIMITER_QUEUES:
                self._drop_idle_queues()
            line = self._queues[name, key] = LimiterQueue(self._client, self._client.declared[name], key)
        return line

    def permit(self, name: str, key: str = "") -> LimiterPermit:
        """For a handler that asks by itself."""
        return LimiterPermit(self, name, key)

    def is_handler_blocked(self, handler: Handler) -> bool:
        """Whether items of a handler need not be claimed: none may begin for a while."""
        return handler.limiter is not None and handler.limit_by is None and self.is_limiter_blocked(handler.limiter)

    def is_limiter_blocked(self, name: str) -> bool:
        """Whether a limiter lets nobody begin for a while, as far as this process knows."""
        line = self._queues.get((name, ""))
        if line is None or line.remaining_block_s() <= MAX_BLOCK_WAIT_S:
            return False
        line.recheck_block()
        return True

    def get_rate_per_s(self, handler: Handler) -> float | None:
        """Items a second that a handler's limiter lets begin, for everybody; None if it does not count them."""
        if handler.limiter is None or handler.limit_by is not None or handler.limiter not in self._client.declared:
            return None
        line = self._queues.get((handler.limiter, ""))
        return self._client.declared[handler.limiter].permits_per_s if line is None else line.rate_per_s

    def cancel_waiters(self, owner: object) -> None:
        for line in self._queues.values():
            if line.waiter_count:
                line.cancel_waiters(owner)

    def count_waiters(self) -> dict[str, int]:
        """How many items of this process wait for each limiter."""
        found: dict[str, int] = {}
        for (name, _), line in self._queues.items():
            found[name] = found.get(name, 0) + line.waiter_count
        return found

    def report_usage(self) -> None:
        """How many calls began since this was last told, and how long they waited."""
        told: dict[str, tuple[int, float]] = {}
        for (name, _), line in self._queues.items():
            permits, waited = told.get(name, (0, 0.0))
            told[name] = permits + line.unreported_permits, waited + line.unreported_wait_s
            line.unreported_permits, line.unreported_wait_s = 0, 0.0
        for name, (permits, waited) in told.items():
            if permits:
                emit("limiter.taken", limiter=name, permits=permits, waited_s=round(waited, 3))

    async def close(self) -> None:
        """What was to be told is told."""
        self.report_usage()
        await self._client.close()

    def _drop_idle_queues(self) -> None:
        self._queues = {
            place: line for place, line in self._queues.items() if not line.is_idle or line.remaining_block_s()
        }
