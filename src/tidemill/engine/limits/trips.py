"""What a process says to limiters in the database, and hears of them."""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from typing import Any

from tidemill.domain.decide import describe
from tidemill.domain.errors import InvalidInput
from tidemill.domain.limits import Limiter
from tidemill.domain.limits.stock import ClockFit
from tidemill.domain.measure import moving
from tidemill.store import limiters as store
from tidemill.store.database import Database
from tidemill.store.limiters import REST, Answer, Asking, Refusal
from tidemill.telemetry.events import emit

REACH_S = 0.1  # how far ahead permits are taken: a refusal is heard of by everybody within that
PATIENCE_S = 2.0  # whoever is told to come later than that asks again then: things may have changed
LONGEST_LEAD_S = 0.05


class Trips:
    """The database, for the limits of one process."""

    def __init__(
        self, db: Database, declared: Mapping[str, Limiter], *, worker: str, child: int, seconds: float
    ) -> None:
        self._db = db
        self.declared = declared
        self._worker, self._child, self._seconds = worker, child, seconds
        self._lead: float | None = None
        self._beside: set[asyncio.Task[None]] = set()
        self.fit: ClockFit | None = None

    async def take(
        self, name: str, key: str, *, member: str, wanted: int, places: int, held: int, idle: int
    ) -> tuple[str, Answer]:
        """Permits and more places; and the member that gave them: the one for the rest if there are too many."""
        while True:
            lead = min(self._lead or 0.0, LONGEST_LEAD_S)
            asking = Asking(
                name, key, self._worker, self._child, wanted, places, held, idle, lead, REACH_S, self._seconds, member
            )
            asked, answer = await self._db.run(store.take, asking)
            answered = time.monotonic()
            if answer is not None:
                self._learn(asked, answered, answer.clock)
                return key, answer
            key = await self._introduce(name, key)

    def _learn(self, asked: float, answered: float, clock: float) -> None:
        self._lead = moving(self._lead, answered - asked)
        newer = ClockFit.of(asked, answered, clock)
        self.fit = newer if self.fit is None else self.fit.narrowed(newer)

    async def _introduce(self, name: str, key: str) -> str:
        """Somebody who is not known there yet, or was forgotten."""
        if name not in self.declared:
            raise InvalidInput(f"there is no limiter {name!r}")
        await self._db.run(store.declare, [self.declared[name]])
        if key and not await self._db.run(store.add_member, name, key):
            await self._db.run(store.add_member, name, REST)
            return REST
        return key

    async def refuse(self, name: str, key: str, *, after: float, age: float, times: int) -> Refusal | None:
        return await self._db.run(store.refuse, name, key, after=after, age=age, times=times)

    def give_back(self, name: str, key: str, starts: list[float], slack: float) -> None:
        self.beside(self._give_back(name, key, starts, slack))

    async def _give_back(self, name: str, key: str, starts: list[float], slack: float) -> None:
        """Not tried again: whoever does not know whether they are back would give them back twice."""
        async with self._db.transaction(durable=False) as conn:
            await store.give_back(conn, name, key, starts, slack)

    async def leave(self, name: str, key: str, held: int, member: str) -> None:
        await self._db.run(store.leave, name, key, self._worker, self._child, held, member)

    def beside(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Nobody waits for it, but the end of the process does."""
        task = asyncio.get_running_loop().create_task(_told(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    async def close(self) -> None:
        while self._beside:
            await asyncio.wait(self._beside)


async def _told(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  permits lapse by themselves
        emit("loop.failed", loop="limits", error=describe(error))
