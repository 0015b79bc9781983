"""One look at the database for all who ask for the same at the same time.

Many people watch one job, and a service that falls behind would be asked for the same again and again. Whoever asks
while an answer is being fetched shares the next one with all who come meanwhile: nobody gets an answer that is older
than their question, and however many ask, one look is under way and one waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """By key, which says all that the answer depends on: also for whom it is."""

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def look(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """The answer; shielded, for whoever asked first may hang up while others still wait."""
        look = self._waiting.get(key)
        if look is None:
            before = self._under_way.get(key)
            look = asyncio.create_task(self._fetch(key, before, fetch))
            (self._under_way if before is None else self._waiting)[key] = look
        return await asyncio.shield(look)

    async def _fetch(self, key: Hashable, before: asyncio.Task[T] | None, fetch: Callable[[], Awaitable[T]]) -> T:
        if before is not None:
            await asyncio.wait([before])
            self._under_way[key] = self._waiting.pop(key)
        try:
            return await fetch()
        finally:
            if key not in self._waiting:  # else that one takes the place
                del self._under_way[key]
