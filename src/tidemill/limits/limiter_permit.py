"""Permits that handlers request for their own calls, and the record of the throttled calls they reported."""

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, Self

from tidemill.core.errors import InvalidInput
from tidemill.core.outcome import Retry, Wait
from tidemill.core.throttling import extract_retry_after_s, is_throttling_error, iterate_causes
from tidemill.limits.limiter_queue import LimiterQueue


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

    def bind(self, limits: PermitProvider) -> None:
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


if TYPE_CHECKING:
    from tidemill.limits.limiter_registry import LimiterRegistry

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
