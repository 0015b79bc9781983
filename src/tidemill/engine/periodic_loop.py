"""The base class of the engine's loops."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable

from tidemill.core.decide import describe_exception
from tidemill.telemetry.events import emit

LOOP_ERROR_PAUSE_S = 1.0
BROKEN_AFTER_FAILED_TICKS = 3


class PeriodicLoop(ABC):
    """A task that runs repeatedly. ``tick`` runs it once and returns how long to wait."""

    name: str

    def __init__(self) -> None:
        self._wake_event = asyncio.Event()
        self._stop_event = asyncio.Event()
        self._has_worked = False
        self._failed_ticks = 0  # in a row

    @property
    def is_broken(self) -> bool:
        """Whether the loop worked in this process and now fails repeatedly, so that a new process may help."""
        return self._has_worked and self._failed_ticks >= BROKEN_AFTER_FAILED_TICKS

    @abstractmethod
    async def tick(self) -> float:
        """Run once; return the seconds until the next run, 0 if there is more to do now."""

    @property
    def is_stopping(self) -> bool:
        return self._stop_event.is_set()

    def wake(self) -> None:
        """End the current wait, so that the next tick runs now."""
        self._wake_event.set()

    def request_stop(self) -> None:
        """Stop the loop after the current tick."""
        self._stop_event.set()
        self._wake_event.set()

    async def run(self) -> None:
        """Run until stopped. An error in a tick is reported and does not end the loop."""
        while not self.is_stopping:
            await self.sleep_until_woken(await self.tick_safely())

    async def tick_safely(self) -> float:
        """Run one tick, report its exception if any, and return the seconds until the next."""
        self._wake_event.clear()
        try:
            delay = await self.tick()
        except Exception as error:  # noqa: BLE001  one failed tick must not end the loop silently
            self._failed_ticks += 1
            emit("loop.failed", loop=self.name, error=_describe_first_group_error(error))
            return LOOP_ERROR_PAUSE_S
        self._has_worked, self._failed_ticks = True, 0
        return delay

    async def sleep_until_woken(self, seconds: float) -> None:
        """Wait until the time is over, or until woken."""
        if seconds and not self.is_stopping:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake_event.wait(), seconds)


class CallbackLoop(PeriodicLoop):
    """A loop whose tick is a function of another package."""

    def __init__(self, name: str, tick: Callable[[], Awaitable[float]]) -> None:
        super().__init__()
        self.name = name
        self._tick = tick

    async def tick(self) -> float:
        return await self._tick()


def _describe_first_group_error(error: BaseException) -> str:
    """Describe the first exception of a group, which is more specific than the group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return describe_exception(error)
