"""One look for all who ask at about the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Together(Generic[K, V]):
    """``look`` is given what was asked for since it last looked, and answers in that order."""

    def __init__(self, look: Callable[[Sequence[K]], Awaitable[Sequence[V]]]) -> None:
        self._look = look
        self._asked: dict[K, asyncio.Future[V]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def ask(self, key: K) -> V:
        future = self._asked.get(key)
        if future is None:
            future = self._asked[key] = asyncio.get_running_loop().create_future()
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_around())
        return await asyncio.shield(future)  # one of several who ask may be cancelled

    async def _look_around(self) -> None:
        try:
            while self._asked:
                await asyncio.sleep(0)  # those who are about to ask are heard, too
                asked, self._asked = self._asked, {}
                await self._answer(asked)
        finally:
            self._looking = None

    async def _answer(self, asked: dict[K, asyncio.Future[V]]) -> None:
        try:
            found = await self._look(list(asked))
        except Exception as error:  # noqa: BLE001  it is for those who asked
            for future in asked.values():
                future.set_exception(error)
                future.exception()  # nobody may be left to hear it
        else:
            for future, value in zip(asked.values(), found, strict=True):
                future.set_result(value)
