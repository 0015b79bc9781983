"""A permit that a handler asks for by itself."""

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

from tidemill.domain.errors import InvalidInput
from tidemill.domain.outcome import Retry
from tidemill.domain.throttle import is_throttle, retry_after
from tidemill.engine.limits.entrance import Postponed, member_key

if TYPE_CHECKING:
    from tidemill.engine.limits.process import ProcessLimits


BAD_KEY = "the member of a limiter is named by a text"


class CallPermit:
    """For one call: ``async with``, or ``with`` in a handler that runs in a thread."""

    def __init__(self, limits: "ProcessLimits", name: str, key: str) -> None:
        self._limits = limits
        self._line = limits.line(name, member_key(key, BAD_KEY))
        self._started = 0.0

    async def __aenter__(self) -> Self:
        wait = await self._line.enter(self)
        if wait is not None:
            raise Postponed(self._line, wait)
        self._started = time.monotonic()
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None and was_refused(error):
                said = error.after if isinstance(error, Retry) else retry_after(error)
                self._line.refused(said, self._started)
                set_told(error)
        finally:  # what a handler raises may be odd in any way
            self._line.leave(time.monotonic() - self._started)

    def __enter__(self) -> Self:
        loop = self._limits.loop
        if loop is None:
            raise InvalidInput("a limiter was asked outside of a worker")
        return asyncio.run_coroutine_threadsafe(self.__aenter__(), loop).result()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._limits.loop is not None:
            asyncio.run_coroutine_threadsafe(self.__aexit__(kind, error, trace), self._limits.loop).result()


def was_refused(error: BaseException) -> bool:
    return bool(error.throttled) if isinstance(error, Retry) else is_throttle(error)


def set_told(error: BaseException) -> None:
    """The limiter whose call it was knows: the handler's own is not to blame."""
    with suppress(Exception):
        error.tidemill_told = True  # type: ignore[attr-defined]


def is_told(error: BaseException) -> bool:
    return bool(getattr(error, "tidemill_told", False))
