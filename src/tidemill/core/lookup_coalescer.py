"""Combines concurrent lookups of single keys into one lookup of many keys."""

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
