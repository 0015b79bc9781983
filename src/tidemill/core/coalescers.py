"""Coalescers: concurrent lookups of single keys become one lookup, and equal requests share one query."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Coalescer(Generic[K, V]):
    """Runs ``lookup`` with all keys requested since its last run; it returns the values in the same order."""

    def __init__(self, lookup: Callable[[Sequence[K]], Awaitable[Sequence[V]]]) -> None:
        self._lookup = lookup
        self._pending: dict[K, asyncio.Future[V]] = {}
        self._lookup_task: asyncio.Task[None] | None = None

    async def get(self, key: K) -> V:
        future = self._pending.get(key)
        if future is None:
            future = self._pending[key] = asyncio.get_running_loop().create_future()
        if self._lookup_task is None:
            self._lookup_task = asyncio.create_task(self._run_lookups())
        return await asyncio.shield(future)  # other callers may wait for the same key if this one is cancelled

    async def _run_lookups(self) -> None:
        try:
            while self._pending:
                await asyncio.sleep(0)  # let tasks that are ready to run add their keys
                requests, self._pending = self._pending, {}
                await self._look_up_and_answer_requests(requests)
        finally:
            self._lookup_task = None

    async def _look_up_and_answer_requests(self, requests: dict[K, asyncio.Future[V]]) -> None:
        try:
            values = await self._lookup(list(requests))
        except Exception as error:  # noqa: BLE001  every caller gets the exception
            for future in requests.values():
                future.set_exception(error)
                future.exception()  # avoids a warning if all callers were cancelled
        else:
            for future, value in zip(requests.values(), values, strict=True):
                future.set_result(value)


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
