"""The one shape of every loop."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from tidemill.domain.decide import describe
from tidemill.telemetry.events import emit

AFTER_AN_ERROR = 1.0


class Service(ABC):
    """Something that is done again and again. ``tick`` does it once and says how long to wait."""

    name: str

    def __init__(self) -> None:
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()

    @abstractmethod
    async def tick(self) -> float:
        """Do it once; the seconds until the next time, 0 when there is more to do at once."""

    @property
    def stopping(self) -> bool:
        return self._stop.is_set()

    def wake(self) -> None:
        """Do it now rather than after the wait."""
        self._wake.set()

    def stop(self) -> None:
        """Do it no more; a tick under way is finished."""
        self._stop.set()
        self._wake.set()

    async def run(self) -> None:
        """Until stopped. An error is told of and survived."""
        while not self.stopping:
            await self.pause(await self.step())

    async def step(self) -> float:
        """One tick that does not fail; the seconds until the next."""
        self._wake.clear()
        try:
            return await self.tick()
        except Exception as error:  # noqa: BLE001  a loop that dies of one bad tick would be a silent stop
            emit("loop.failed", loop=self.name, error=_words(error))
            return AFTER_AN_ERROR

    async def pause(self, seconds: float) -> None:
        """Wait for so long, or until woken."""
        if seconds and not self.stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)


class Ticking(Service):
    """A service of what another room does again and again."""

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]]) -> None:
        super().__init__()
        self.name = name
        self._tick = tick

    async def tick(self) -> float:
        return await self._tick()


def _words(error: BaseException) -> str:
    """The first cause in a group says more than the group does."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe(error)
