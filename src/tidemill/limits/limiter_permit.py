"""Permits that handlers request for their own calls, and the record of the throttled answers they reported."""

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, Self

from tidemill.core.errors import InvalidInput
from tidemill.core.outcome import Retry, Wait
from tidemill.core.throttling import is_throttling_error, iterate_causes, read_retry_after_s
from tidemill.limits.limiter_queue import LimiterQueue


class Permit(Protocol):
    """Leave to begin one call: waited for on the way in, given back on the way out.

    A refusal (429, 503) that passes through is told to the limiter, and to no other. ``Wait`` is raised when the
    limiter is blocked for longer than anybody would wait here: the item goes back and comes again then, uncharged.
    """

    async def __aenter__(self) -> Any: ...
    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def __enter__(self) -> Any: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...


class PermitProvider(Protocol):
    """The limiters of the installation, as one process asks them.

    A handler that makes one call per item names its limiter (``limit=``, and ``limit_by=`` a function of the item for a
    member per domain): then its items begin when there is a permit, and it need not ask. A batch handler has one permit
    per batch. One that makes several calls, or calls others beside, asks for each of them:
    ``async with limits.permit("shop")``. A mill's ``registry.desk.limit`` is the same, before there is a worker.
    """

    def permit(self, name: str, key: str = "") -> Permit: ...


class LimiterHandle:
    """Of a mill: it is declared before there is a worker, and asked inside one."""

    def __init__(self) -> None:
        self._limits: PermitProvider | None = None

    def bind(self, limits: PermitProvider) -> None:
        """From here on this process is a worker."""
        self._limits = limits

    def defer_permit(self, name: str, key: str = "") -> "DeferredPermit":
        return DeferredPermit(self, name, key)

    def permit(self, name: str, key: str) -> Permit:
        if self._limits is None:
            raise InvalidInput(f"limiter {name!r} was asked outside of a worker: only handlers that run can ask")
        return self._limits.permit(name, key)


class DeferredPermit:
    """``async with`` in an async handler, ``with`` in one that runs in a thread."""

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


if TYPE_CHECKING:
    from tidemill.limits.limiter_registry import LimiterRegistry

MAX_MEMBER_KEY_LENGTH = 255
PERMIT_KEY_ERROR = "the member of a limiter is named by a text"


class ThrottleReports(list[BaseException]):
    """The throttled answers of one running call that a permit inside the handler has reported to its own limiter.

    The limiter of the handler and its concurrency must not count them a second time.
    """

    __slots__ = ()

    def set_as_current(self) -> None:
        """Collect the reports of permits that are used in this task or thread, and in tasks that it starts."""
        _current_reports.set(self)

    def has_reported(self, error: BaseException) -> bool:
        """Whether a permit reported this exception, or one that it was raised from."""
        return bool(self) and any(cause is reported for cause in iterate_causes(error) for reported in self)


_current_reports: ContextVar[ThrottleReports | None] = ContextVar("tidemill_throttle_reports", default=None)


class RateLimited(Wait):
    """The outcome of an item that would wait too long for its limiter: it is retried later, uncharged."""

    def __init__(self, queue: LimiterQueue, seconds: float) -> None:
        member = f" for {queue.key}" if queue.key else ""
        super().__init__(f"limiter {queue.name}{member} lets nobody begin before", after=seconds, code="limited")
        self.limiter = None if queue.key else queue.name  # the limiter, if all of it is blocked and not one member


class LimiterPermit:
    """Permission for one call: ``async with``, or ``with`` in a handler that runs in a thread."""

    def __init__(self, limits: "LimiterRegistry", name: str, key: str) -> None:
        self._registry = limits
        self._queue = limits.get_queue(name, normalize_member_key(key, PERMIT_KEY_ERROR))
        self._reports = _current_reports.get()
        self._started_at = 0.0

    async def __aenter__(self) -> Self:
        wait = await self._queue.try_acquire(self)
        if wait is not None:
            raise RateLimited(self._queue, wait)
        self._started_at = time.monotonic()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and _is_throttled(error):
                after = error.after if isinstance(error, Retry) else read_retry_after_s(error)
                self._queue.report_throttled(after, self._started_at)
                if self._reports is not None:
                    self._reports.append(error)
        finally:  # attributes of a user's exception may raise anything
            self._queue.release(time.monotonic() - self._started_at)

    def __enter__(self) -> Self:
        loop = self._registry.loop
        if loop is None:
            raise InvalidInput("a limiter was asked outside of a worker")
        return asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._registry.loop is not None:
            asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._registry.loop).result()


def normalize_member_key(key: object, error_message: str) -> str:
    """A member's name in a form that PostgreSQL can store."""
    if not isinstance(key, str):
        raise TypeError(error_message)
    return key[:MAX_MEMBER_KEY_LENGTH].encode(errors="replace").decode().replace("\x00", "")


def _is_throttled(error: BaseException) -> bool:
    return bool(error.throttled) if isinstance(error, Retry) else is_throttling_error(error)
