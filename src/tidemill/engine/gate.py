"""Many may pass together, or one alone: a suspect must be the only one whose death it could be."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Gate:
    """A shared and exclusive lock; who waits to be alone goes before newcomers."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._inside = 0
        self._alone = False
        self._waiting_alone = 0

    @asynccontextmanager
    async def passing(self, *, alone: bool) -> AsyncIterator[None]:
        await (self._enter_alone() if alone else self._enter())
        try:
            yield
        finally:
            await self._leave(alone)

    async def _enter(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._alone and not self._waiting_alone)
            self._inside += 1

    async def _enter_alone(self) -> None:
        async with self._changed:
            self._waiting_alone += 1
            try:
                await self._changed.wait_for(lambda: not self._alone and not self._inside)
            finally:
                self._waiting_alone -= 1
                self._changed.notify_all()
            self._alone = True

    async def _leave(self, alone: bool) -> None:
        async with self._changed:
            if alone:
                self._alone = False
            else:
                self._inside -= 1
            self._changed.notify_all()
