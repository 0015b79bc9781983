"""What a process says to limiters in the database, and hears of them."""

import asyncio
import math
import time
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput
from tidemill.core.moving_average import clamp, update_moving_average
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_records import SHARED_MEMBER_KEY, PermitGrant, PermitRequest, ThrottleResult
from tidemill.limits.permit_cache import ClockOffsetBounds
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

PERMIT_LOOKAHEAD_S = 0.1  # how far ahead permits are taken: a refusal is heard of by everybody within that
MAX_BLOCK_WAIT_S = 2.0  # whoever is told to come later than that asks again then: things may have changed
MAX_ANSWER_LEAD_S = 0.05


class LimiterClient:
    """The database, for the limits of one process."""

    def __init__(
        self, db: Database, declared: Mapping[str, Limiter], *, worker: str, child: int, lease_seconds: float
    ) -> None:
        self._db = db
        self.declared = declared
        self._worker, self._child, self._lease_seconds = worker, child, lease_seconds
        self._answer_lead_s: float | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self.clock_fit: ClockOffsetBounds | None = None

    async def request_permits(
        self, name: str, key: str, *, member: str, wanted: int, places: int, held: int, idle: int
    ) -> tuple[str, PermitGrant]:
        """Permits and more places; and the member that gave them: the one for the rest if there are too many."""
        while True:
            lead = min(self._answer_lead_s or 0.0, MAX_ANSWER_LEAD_S)
            asking = PermitRequest(
                name,
                key,
                self._worker,
                self._child,
                wanted,
                places,
                held,
                idle,
                lead,
                PERMIT_LOOKAHEAD_S,
                self._lease_seconds,
                member,
            )
            asked, answer = await self._db.read(store.take_permits, asking)
            answered = time.monotonic()
            if answer is not None:
                self._record_round_trip(asked, answered, answer.clock)
                return key, answer
            key = await self._register_limiter_member(name, key)

    def _record_round_trip(self, asked: float, answered: float, clock: float) -> None:
        self._answer_lead_s = update_moving_average(self._answer_lead_s, answered - asked)
        newer = ClockOffsetBounds.from_round_trip(asked, answered, clock)
        self.clock_fit = newer if self.clock_fit is None else self.clock_fit.narrow(newer)

    async def _register_limiter_member(self, name: str, key: str) -> str:
        """Somebody who is not known there yet, or was forgotten."""
        if name not in self.declared:
            raise InvalidInput(f"there is no limiter {name!r}")
        await self._db.run(store.declare_limiters, [self.declared[name]])
        if key and not await self._db.run(store.add_limiter_member, name, key):
            await self._db.run(store.add_limiter_member, name, SHARED_MEMBER_KEY)
            return SHARED_MEMBER_KEY
        return key

    async def report_throttled(
        self, name: str, key: str, *, after: float, age: float, times: int
    ) -> ThrottleResult | None:
        return await self._db.run(store.record_throttle, name, key, after=after, age=age, times=times)

    def return_permits(self, name: str, key: str, starts: list[float], slack: float) -> None:
        self.run_in_background(self._return_permits(name, key, starts, slack))

    async def _return_permits(self, name: str, key: str, starts: list[float], slack: float) -> None:
        """Not tried again: whoever does not know whether they are back would give them back twice."""
        async with self._db.transaction(durable=False) as conn:
            await store.return_permits(conn, name, key, starts, slack)

    async def report_held_slots(self, name: str, key: str, held: int, member: str) -> None:
        await self._db.run_async_commit(store.set_held_slots, name, key, self._worker, self._child, held, member)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Nobody waits for it, but the end of the process does."""
        task = asyncio.get_running_loop().create_task(_run_and_log_failure(work))
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    async def close(self) -> None:
        while self._background_tasks:
            await asyncio.wait(self._background_tasks)


async def _run_and_log_failure(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  permits lapse by themselves
        emit("loop.failed", loop="limits", error=describe_exception(error))


DEFAULT_BLOCK_S = 1.0  # how long nobody begins after a refusal that does not say how long
MAX_BLOCK_S = 7 * 86_400.0


class ThrottledQueue(Protocol):
    """The line whose calls they were."""

    name: str
    key: str


class ThrottleReporter:
    """All that come while one is told are told together: fifty answers of one burst are one trip, or two."""

    def __init__(self, line: ThrottledQueue, trips: LimiterClient) -> None:
        self._queue = line
        self._client = trips
        self.unreported = 0
        self._block_s = 0.0
        self._last_started_at = float("-inf")

    def add_throttled_call(self, after: object, started: float) -> float:
        """A call that began then was refused; for how many seconds nobody begins."""
        seconds = _parse_block_s(after)
        self.unreported += 1
        self._block_s = max(self._block_s, seconds)
        self._last_started_at = max(self._last_started_at, started)
        if self.unreported == 1:
            self._client.run_in_background(self._report_throttling())
        return seconds

    async def _report_throttling(self) -> None:
        line = self._queue
        while self.unreported:
            times, after, age = self.unreported, self._block_s, time.monotonic() - self._last_started_at
            self._block_s, self._last_started_at = 0.0, float("-inf")
            try:
                told = await self._client.report_throttled(line.name, line.key, after=after, age=age, times=times)
            finally:
                self.unreported -= times
            if told is None:
                continue
            emit("limiter.blocked", limiter=line.name, key=line.key, seconds=round(told.blocked, 1), refusals=times)
            if told.cuts:
                emit("limiter.slowed", limiter=line.name, key=line.key, share=round(told.share, 3))


def _parse_block_s(after: object) -> float:
    """What a handler says is the handler's: what is no number of seconds says nothing."""
    if isinstance(after, int | float) and -math.inf < after < math.inf:  # isfinite() fails for very large integers
        return clamp(after, 0.0, MAX_BLOCK_S)
    return DEFAULT_BLOCK_S
