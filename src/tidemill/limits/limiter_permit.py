"""Permits that handlers request for their own calls, and the record of the throttled answers they reported."""

import asyncio
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING, Self

from tidemill.core.errors import InvalidInput
from tidemill.core.outcome import Retry, Wait
from tidemill.core.throttling import is_throttling_error, iterate_causes, read_retry_after_s
from tidemill.limits.limiter_queue import LimiterQueue

if TYPE_CHECKING:
    from tidemill.limits.limiter_registry import LimiterRegistry

MAX_MEMBER_KEY_LENGTH = 255
PERMIT_KEY_ERROR = "the member of a limiter is named by a text"


class ThrottleReports(list[BaseException]):
    """The throttled answers of one running call that a permit inside the handler has reported to its own limiter.

    The limiter of the handler and its concurrency must not count them a second time.
    """

    __slots__ = ()

    def activate(self) -> None:
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
        wait = await self._queue.acquire(self)
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
