"""Rows that are asked for at about the same time become one request; each gets its own answer."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemill.domain.matching.candidates import Candidate
from tidemill.domain.matching.protocol import Answer, batch_size_in, decode, encode, parse
from tidemill.domain.matching.strategies import Query
from tidemill.domain.outcome import Outcome
from tidemill.domain.services import CallFailed
from tidemill.domain.services.calls import NOTHING_THERE, described, unusable
from tidemill.handlers.services.desk import Insist, ServiceDesk

GATHER_S = 0.005  # how long a request that is not full waits for others to join it
BATCH = 10  # rows in a request, of a service that does not say how many it takes
BATCH_MAX = 200  # whatever it says
ASK_AGAIN_S = 300.0  # for the manifest, if it could not be had


@dataclass(eq=False, slots=True)
class Asked:
    """One row that waits for its candidates."""

    id: str
    query: Query
    answer: "asyncio.Future[list[Candidate]]"


class Gatherer:
    """The rows of one job at the desk of one service."""

    def __init__(self, desk: ServiceDesk, insist: Insist) -> None:
        self._desk = desk
        self._insist = insist
        self._waiting: deque[Asked] = deque()
        self._alone: deque[Asked] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_taking = False

    @property
    def is_idle(self) -> bool:
        return not self._tasks

    async def ask(self, id_: str, query: Query, *, alone: bool = False) -> list[Candidate]:
        """The candidates of a row; ``alone``, in a request of its own."""
        asked = Asked(id_, query, asyncio.get_running_loop().create_future())
        (self._alone if alone else self._waiting).append(asked)
        if not self._is_taking:
            self._is_taking = True
            self._begin(self._take_all())
        return await asked.answer

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, work: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _take_all(self) -> None:
        """A request whenever there is a place at the desk: rows that come meanwhile fill it."""
        try:
            while self._waiting or self._alone:
                await self._desk.enter()
                if not await self._begin_next():
                    self._desk.leave()
        finally:
            self._is_taking = False

    async def _begin_next(self) -> bool:
        """Whether the place at the desk is used; whatever goes wrong before is for those who wait."""
        try:
            batch = await self._next()
        except Exception as error:  # noqa: BLE001  as above: nobody waits for ever
            _fail([*self._alone, *self._waiting], error)
            self._alone.clear()
            self._waiting.clear()
            return False
        if batch:
            self._begin(self._serve(batch))
        return bool(batch)

    async def _next(self) -> list[Asked]:
        """Rows whose askers still wait; one by itself that is to be alone."""
        size = await batch_size(self._desk, self._insist)
        if len(self._waiting) < size and not self._alone:
            await asyncio.sleep(GATHER_S)
        source, most = (self._alone, 1) if self._alone else (self._waiting, size)
        batch: list[Asked] = []
        while source and len(batch) < most:
            asked = source.popleft()
            if not asked.answer.done():
                batch.append(asked)
        return batch

    async def _serve(self, batch: list[Asked]) -> None:
        try:
            error = await self._try(batch)
            if error is not None:
                await self._divide(batch, error)
        except Exception as error:  # noqa: BLE001  whatever it is, it is for those who wait
            _fail(batch, error)
        finally:
            for asked in batch:
                asked.answer.cancel()  # at the end of the process: nobody waits for ever
            self._desk.leave()

    async def _try(self, batch: Sequence[Asked]) -> CallFailed | None:
        """Ask; whoever is answered has an answer. Otherwise, why nobody is."""
        try:
            answers = await self._request({asked.id: asked.query for asked in batch})
        except CallFailed as error:
            return error
        except Outcome as outcome:  # nobody wants it any more
            _fail(batch, outcome)
            return None
        for asked in batch:
            answer = answers[asked.id]
            if isinstance(answer, str):
                _fail([asked], unusable(answer))
            elif not asked.answer.done():
                asked.answer.set_result(answer)
        return None

    async def _divide(self, batch: Sequence[Asked], error: CallFailed) -> None:
        """Find the row that is to blame by halves. If both fail and it may pass, the service is: nobody is blamed."""
        if len(batch) == 1 or not error.splits:
            _fail(batch, error)
            return
        middle = len(batch) // 2
        halves = [batch[:middle], batch[middle:]]
        failed = [(half, why) for half in halves if (why := await self._try(half)) is not None]
        if len(failed) == len(halves) and error.passing and all(why.passing for _, why in failed):
            _fail(batch, error)
            return
        for half, why in failed:
            await self._divide(half, why)

    async def _request(self, queries: Mapping[str, Query]) -> dict[str, Answer]:
        protocol = self._desk.service.protocol
        message = encode(queries, protocol)
        headers = [("Content-Type", message.content_type)]
        answered = await self._desk.ask(
            "POST", message.path, insist=self._insist, headers=headers, content=message.body, rows=len(queries)
        )
        if answered.status in NOTHING_THERE:
            raise CallFailed("service_refused", f"the service answered {described(answered.status)}")
        return decode(answered.body, queries, protocol)


def _fail(batch: Sequence[Asked], error: BaseException) -> None:
    for asked in batch:
        if not asked.answer.done():
            asked.answer.set_exception(error)


async def batch_size(desk: ServiceDesk, insist: Insist) -> int:
    """As it is declared, or as the service's manifest says; asked for until it is known, and not too often."""
    if desk.service.batch is not None:
        return desk.service.batch
    if desk.batch_size is None and time.monotonic() >= desk.batch_size_from:
        desk.batch_size_from = time.monotonic() + ASK_AGAIN_S
        try:
            answered = await desk.ask("GET", "", insist=insist, rows=0)
            desk.batch_size = min(batch_size_in(parse(answered.body)) or BATCH, BATCH_MAX)
        except Exception:  # noqa: BLE001, S110  the queries that follow will tell
            pass
    return desk.batch_size or BATCH
