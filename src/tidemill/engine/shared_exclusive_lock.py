"""The lock that isolates suspect items in a process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class SharedExclusiveLock:
    """A shared or exclusive lock. An isolated item holds it exclusively, so that a crash is certainly its own.

    A waiter for the exclusive lock precedes new shared holders.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._shared_holders = 0
        self._is_exclusive = False
        self._exclusive_waiters = 0

    @asynccontextmanager
    async def hold(self, *, exclusive: bool) -> AsyncIterator[None]:
        if exclusive:
            await self._acquire_exclusive()
        else:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._exclusive_waiters)
                self._shared_holders += 1
        try:
            yield
        finally:
            async with self._changed:
                if exclusive:
                    self._is_exclusive = False
                else:
                    self._shared_holders -= 1
                self._changed.notify_all()

    async def _acquire_exclusive(self) -> None:
        async with self._changed:
            self._exclusive_waiters += 1
            try:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._shared_holders)
            finally:
                self._exclusive_waiters -= 1
                self._changed.notify_all()
            self._is_exclusive = True
