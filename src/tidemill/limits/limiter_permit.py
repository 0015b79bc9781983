"""Permits that handlers request for their own calls, and the record of the throttled calls they reported."""

import asyncio
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol, Self

from tidemill.core.errors import InvalidInput
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Retry, Wait
from tidemill.core.throttling import extract_retry_after_s, is_throttling_error, iterate_causes
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_client import MAX_BLOCK_WAIT_S, LimiterClient
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

    def permit(self, name: str, key: str = "") -> "LimiterPermit":
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


class Permit(Protocol):
    """Permission to start one call: acquired on entry of the context, released on exit.

    A throttling exception (429, 503) inside the context is reported only to this limiter. If the limiter is blocked for
    too long, ``Wait`` is raised on entry: the item is retried later, uncharged.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


class PermitProvider(Protocol):
    """Provides permits of the declared limiters to one process.

    A handler that makes one call per item names its limiter with ``limit=`` (and, for a member per domain, with
    ``limit_by=``, a function of the item): its items then start only with a permit. A batch handler has one permit per
    batch. A handler that makes several calls, or calls several services, requests a permit for each:
    ``async with limits.permit("shop")``.
    """

    def permit(self, name: str, key: str = "") -> Permit: ...


class LimiterHandle:
    """The limiters of a mill: declared before a worker starts, used inside it."""

    def __init__(self) -> None:
        self._limits: PermitProvider | None = None

    def bind_limiters(self, limits: PermitProvider) -> None:
        """Set the limiters of this worker process."""
        self._limits = limits

    def defer_permit(self, name: str, key: str = "") -> "DeferredPermit":
        return DeferredPermit(self, name, key)

    def permit(self, name: str, key: str) -> Permit:
        if self._limits is None:
            raise InvalidInput(f'Limiter "{name}" was used outside of a worker. Use it inside a running handler.')
        return self._limits.permit(name, key)


class DeferredPermit:
    """A permit for ``async with`` in an async handler, or ``with`` in a handler that runs in a thread."""

    def __init__(self, handle: LimiterHandle, name: str, key: str) -> None:
        self._handle, self._name, self._key = handle, name, key
        self._permit: Permit | None = None

    async def __aenter__(self) -> Self:
        self._permit = permit = self._handle.permit(self._name, self._key)
        await permit.__aenter__()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            await self._permit.__aexit__(kind, error, trace)

    def __enter__(self) -> Self:
        self._permit = permit = self._handle.permit(self._name, self._key)
        permit.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._permit is not None:
            self._permit.__exit__(kind, error, trace)


MAX_MEMBER_KEY_LENGTH = 255
PERMIT_KEY_ERROR = "the key of a limiter's member must be a string"


class ThrottleReports(list[BaseException]):
    """The throttling exceptions of one call that a permit inside the handler has reported to its own limiter.

    The handler's own limiter and its concurrency controller must not count them a second time.
    """

    __slots__ = ()

    def set_as_current(self) -> None:
        """Collect the reports of permits that are used in this task or thread, and in tasks that it starts."""
        _current_reports.set(self)

    def has_reported(self, error: BaseException) -> bool:
        """Return whether a permit reported this exception, or one that it was raised from."""
        return bool(self) and any(cause is reported for cause in iterate_causes(error) for reported in self)


_current_reports: ContextVar[ThrottleReports | None] = ContextVar("tidemill_throttle_reports", default=None)


class RateLimited(Wait):
    """The outcome of an item that would wait too long for its limiter: it is retried later, uncharged."""

    def __init__(self, queue: LimiterQueue, seconds: float) -> None:
        member = f" for {queue.key}" if queue.key else ""
        super().__init__(f'Limiter "{queue.name}"{member} allows no call before', after=seconds, code="limited")
        self.limiter = None if queue.key else queue.name  # set if the whole limiter is blocked, not only a member


class LimiterPermit:
    """Permission for one call: ``async with``, or ``with`` in a handler that runs in a thread."""

    def __init__(self, limits: "LimiterRegistry", name: str, key: str) -> None:
        self._registry = limits
        self._queue = limits.get_or_create_queue(name, normalize_member_key(key, PERMIT_KEY_ERROR))
        self._reports = _current_reports.get()
        self._started_at = 0.0

    async def __aenter__(self) -> Self:
        wait = await self._queue.acquire_or_get_wait_s(self)
        if wait is not None:
            raise RateLimited(self._queue, wait)
        self._started_at = time.monotonic()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and _is_throttled(error):
                after = error.after if isinstance(error, Retry) else extract_retry_after_s(error)
                self._queue.block_and_report_throttled(after, self._started_at)
                if self._reports is not None:
                    self._reports.append(error)
        finally:  # attributes of a user's exception may raise anything
            self._queue.release_slot(time.monotonic() - self._started_at)

    def __enter__(self) -> Self:
        loop = self._registry.loop
        if loop is None:
            raise InvalidInput("A limiter was used outside of a worker. Use it inside a running handler.")
        return asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._registry.loop is not None:
            asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._registry.loop).result()


def normalize_member_key(key: object, error_message: str) -> str:
    """Return the key of a member in a form that PostgreSQL can store; raise TypeError if it is not a string."""
    if not isinstance(key, str):
        raise TypeError(error_message)
    return key[:MAX_MEMBER_KEY_LENGTH].encode(errors="replace").decode().replace("\x00", "")


def _is_throttled(error: BaseException) -> bool:
    return bool(error.throttled) if isinstance(error, Retry) else is_throttling_error(error)
