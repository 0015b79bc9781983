"""One look for all who ask at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Coalescer(Generic[K, V]):
    """``look`` is given what was asked for since it last looked, and answers in that order."""

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
        return await asyncio.shield(future)  # one of several who ask may be cancelled

    async def _run_lookups(self) -> None:
        try:
            while self._pending:
                await asyncio.sleep(0)  # those who are about to ask are heard, too
                asked, self._pending = self._pending, {}
                await self._resolve_requests(asked)
        finally:
            self._lookup_task = None

    async def _resolve_requests(self, asked: dict[K, asyncio.Future[V]]) -> None:
        try:
            found = await self._lookup(list(asked))
        except Exception as error:  # noqa: BLE001  it is for those who asked
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # nobody may be left to hear it
        else:
            for future, value in zip(asked.values(), found, strict=True):
                future.set_result(value)
