"""A thread that does one thing after another, for an async caller that may be cancelled."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


class Desk:
    """What was given is done in order, even if nobody waits for it any more."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "desk")
        self._begun: asyncio.Future[Any] | None = None

    async def begin(self, work: Callable[..., Any], *args: Any) -> None:
        """Start, as soon as what was given before is done, and do not wait for the end."""
        await self._finish()
        self._begun = asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def do(self, work: Callable[..., T], *args: Any) -> T:
        await self._finish()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def clear(self, work: Callable[[], None]) -> None:
        """Do this last, whatever became of the rest; a caller that is cancelled once more need not wait for it."""
        last = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self.close()
        unfinished = [last] if self._begun is None else [self._begun, last]
        await asyncio.shield(asyncio.gather(*unfinished, return_exceptions=True))

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def _finish(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun
