"""The one shape of every loop."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from tidemill.core.decide import describe_exception
from tidemill.telemetry.events import emit

LOOP_ERROR_PAUSE_S = 1.0


class PeriodicLoop(ABC):
    """Something that is done again and again. ``tick`` does it once and says how long to wait."""

    name: str

    def __init__(self) -> None:
        self._wake_event = asyncio.Event()
        self._stop_event = asyncio.Event()

    @abstractmethod
    async def tick(self) -> float:
        """Do it once; the seconds until the next time, 0 when there is more to do at once."""

    @property
    def is_stopping(self) -> bool:
        return self._stop_event.is_set()

    def wake(self) -> None:
        """Do it now rather than after the wait."""
        self._wake_event.set()

    def stop(self) -> None:
        """Do it no more; a tick under way is finished."""
        self._stop_event.set()
        self._wake_event.set()

    async def run(self) -> None:
        """Until stopped. An error is told of and survived."""
        while not self.is_stopping:
            await self.sleep_until_woken(await self.tick_safely())

    async def tick_safely(self) -> float:
        """One tick that does not fail; the seconds until the next."""
        self._wake_event.clear()
        try:
            return await self.tick()
        except Exception as error:  # noqa: BLE001  a loop that dies of one bad tick would be a silent stop
            emit("loop.failed", loop=self.name, error=_describe_first_cause(error))
            return LOOP_ERROR_PAUSE_S

    async def sleep_until_woken(self, seconds: float) -> None:
        """Wait for so long, or until woken."""
        if seconds and not self.is_stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake_event.wait(), seconds)


class CallbackLoop(PeriodicLoop):
    """A service of what another room does again and again."""

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]]) -> None:
        super().__init__()
        self.name = name
        self._tick = tick

    async def tick(self) -> float:
        return await self._tick()


def _describe_first_cause(error: BaseException) -> str:
    """The first cause in a group says more than the group does."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe_exception(error)
