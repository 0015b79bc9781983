"""Runs blocking functions one after another in a thread."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class SerialThread:
    """A thread that runs functions one after another, even after the submitting task was cancelled."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "export-writer")
        self._begun: asyncio.Future[Any] | None = None

    async def start_after_previous(self, work: Callable[..., Any], *args: Any) -> None:
        """Wait for the previous function, then start this one and return without waiting for it."""
        await self._wait_for_submitted()
        self._begun = asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run_after_previous(self, work: Callable[..., T], *args: Any) -> T:
        """Wait for the previous function, then run this one and return its result."""
        await self._wait_for_submitted()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run_last(self, work: Callable[[], None]) -> None:
        """Run this after all other functions, even if they failed. Cancelling the caller does not stop it."""
        last = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self.shut_down_without_waiting()
        unfinished = [last] if self._begun is None else [self._begun, last]
        await asyncio.shield(asyncio.gather(*unfinished, return_exceptions=True))

    def shut_down_without_waiting(self) -> None:
        self._thread.shutdown(wait=False)

    async def _wait_for_submitted(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun
