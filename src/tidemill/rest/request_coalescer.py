"""Shares one query among concurrent requests."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from tidemill.runtime import Runtime

T = TypeVar("T")


class RequestCoalescer(Generic[T]):
    """Runs one query for all concurrent requests with the same key.

    A request that arrives while a query runs shares the next query with all other waiting requests. So no result is
    older than its request, and at most one query per key runs and one waits. The key must contain everything that the
    result depends on, including the user.
    """

    def __init__(self) -> None:
        self._under_way: dict[Hashable, asyncio.Task[T]] = {}
        self._waiting: dict[Hashable, asyncio.Task[T]] = {}

    async def get(self, key: Hashable, fetch: Callable[[], Awaitable[T]]) -> T:
        """Return the result. The query is shielded: the first client may disconnect while others still wait."""
        query = self._waiting.get(key)
        if query is None:
            before = self._under_way.get(key)
            query = asyncio.create_task(self._fetch_after_running(key, before, fetch))
            (self._under_way if before is None else self._waiting)[key] = query
        return await asyncio.shield(query)

    async def _fetch_after_running(
        self, key: Hashable, running: asyncio.Task[T] | None, fetch: Callable[[], Awaitable[T]]
    ) -> T:
        if running is not None:
            await asyncio.wait([running])
            self._under_way[key] = self._waiting.pop(key)
        try:
            return await fetch()
        finally:
            if key not in self._waiting:  # otherwise the waiting query has replaced it
                del self._under_way[key]


def make_request_coalescer(_runtime: Runtime) -> RequestCoalescer[bytes]:
    return RequestCoalescer()
