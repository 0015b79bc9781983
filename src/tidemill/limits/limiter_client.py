"""Sends the requests of one process to the limiters in the database."""

import asyncio
import math
import time
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tidemill.core.arithmetic import clamp, update_moving_average
from tidemill.core.decide import describe_exception
from tidemill.core.errors import InvalidInput
from tidemill.limits import limiter_records as store
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_records import SHARED_MEMBER_KEY, PermitGrant, PermitRequest, ThrottleResult
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

CLOCK_DRIFT_S_PER_S = 50e-6  # seconds per second by which two clocks may drift apart
PERMIT_SLACK_USABLE_SHARE = 0.8  # the rest of the slack is for the time between the last clock reading and the call


@dataclass(frozen=True, slots=True)
class ClockOffsetBounds:
    """The offset of the database's clock from the local clock: between ``low`` and ``high``.

    The database reads its clock between the request and the response, so each round trip bounds the offset. The
    intersection of several bounds is narrower.
    """

    low: float
    high: float
    at: float

    @classmethod
    def from_round_trip(cls, sent_at: float, received_at: float, database_clock: float) -> "ClockOffsetBounds":
        return cls(database_clock - received_at, database_clock - sent_at, received_at)

    def narrow(self, newer: "ClockOffsetBounds") -> "ClockOffsetBounds":
        """Return the intersection of both bounds; only the newer if they do not overlap, because a clock was set."""
        drift = CLOCK_DRIFT_S_PER_S * (newer.at - self.at)
        low, high = max(self.low - drift, newer.low), min(self.high + drift, newer.high)
        return ClockOffsetBounds(low, high, newer.at) if low <= high else newer

    def clamp_bounds_to_width(self, max_width: float) -> tuple[float, float]:
        """Return low and high, at most ``max_width`` apart, so that a slow network cannot make permits unusable."""
        middle, half = (self.low + self.high) / 2, min(self.high - self.low, max_width) / 2
        return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class PermitWindow:
    """When a permit is valid, on the local clock; ``database_start`` identifies it in the database."""

    valid_from: float
    valid_until: float
    database_start: float


class PermitCache:
    """Permits in the order of their start times."""

    def __init__(self) -> None:
        self._moments: deque[PermitWindow] = deque()

    def __len__(self) -> int:
        return len(self._moments)

    def add_permits(self, starts: list[float], fit: ClockOffsetBounds, slack: float) -> None:
        low, high = fit.clamp_bounds_to_width(slack / 2)
        new = [PermitWindow(start - low, start - high + slack * PERMIT_SLACK_USABLE_SHARE, start) for start in starts]
        # Permits that another process returned may be earlier than the ones in the cache.
        if new and self._moments and new[0].database_start < self._moments[-1].database_start:
            self._moments = deque(sorted([*self._moments, *new], key=lambda moment: moment.database_start))
        else:
            self._moments.extend(new)

    def drop_expired(self, now: float) -> int:
        """Drop expired permits; return their number."""
        moments, dropped = self._moments, 0
        while moments and moments[0].valid_until < now:
            moments.popleft()
            dropped += 1
        return dropped

    def take_valid_permit(self, now: float) -> PermitWindow | None:
        """Remove and return a permit that is valid now, or None."""
        moments = self._moments
        while moments:
            if moments[0].valid_from > now:
                return None
            moment = moments.popleft()
            if moment.valid_until >= now:
                return moment
        return None

    @property
    def next_valid_from(self) -> float | None:
        """When the next permit becomes valid."""
        return self._moments[0].valid_from if self._moments else None

    def drain(self) -> list[float]:
        """Remove all permits; return their start times on the database's clock."""
        starts = [moment.database_start for moment in self._moments]
        self._moments.clear()
        return starts


PERMIT_LOOKAHEAD_S = 0.1  # how far ahead permits are requested: a block takes effect everywhere within this time
MAX_BLOCK_WAIT_S = 2.0  # a process asks again after this time at the latest: the block may have been removed
MAX_ANSWER_LEAD_S = 0.05


class LimiterClient:
    """The connection of one process to the limiters in the database."""

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
        """Request permits and slots; return the key of the member that granted them, and the grant.

        The key is that of the shared member if the limiter has too many members.
        """
        while True:
            lead = min(self._answer_lead_s or 0.0, MAX_ANSWER_LEAD_S)
            request = PermitRequest(
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
            sent_at, grant = await self._db.read(store.take_permits, request)
            received_at = time.monotonic()
            if grant is not None:
                self._record_round_trip(sent_at, received_at, grant.clock)
                return key, grant
            key = await self._register_limiter_member(name, key)

    def _record_round_trip(self, sent_at: float, received_at: float, clock: float) -> None:
        self._answer_lead_s = update_moving_average(self._answer_lead_s, received_at - sent_at)
        newer = ClockOffsetBounds.from_round_trip(sent_at, received_at, clock)
        self.clock_fit = newer if self.clock_fit is None else self.clock_fit.narrow(newer)

    async def _register_limiter_member(self, name: str, key: str) -> str:
        """Store a limiter and a member that are new or were deleted; return the key of the member to use."""
        if name not in self.declared:
            raise InvalidInput(f'Limiter "{name}" is not declared')
        await self._db.run(store.declare_limiters, [self.declared[name]])
        if key and not await self._db.run(store.add_limiter_member, name, key):
            await self._db.run(store.add_limiter_member, name, SHARED_MEMBER_KEY)
            return SHARED_MEMBER_KEY
        return key

    async def report_throttled(
        self, name: str, key: str, *, after: float, age: float, times: int
    ) -> ThrottleResult | None:
        return await self._db.run(store.block_throttled_limiter, name, key, after=after, age=age, times=times)

    def return_permits_in_background(self, name: str, key: str, starts: list[float], slack: float) -> None:
        self.run_in_background(self._return_permits(name, key, starts, slack))

    async def _return_permits(self, name: str, key: str, starts: list[float], slack: float) -> None:
        """Return unused permits. There is no retry, because it could return them twice."""
        async with self._db.transaction(durable=False) as conn:
            await store.return_permits(conn, name, key, starts, slack)

    async def report_held_slots(self, name: str, key: str, held: int, member: str) -> None:
        await self._db.run_async_commit(store.set_held_slots, name, key, self._worker, self._child, held, member)

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Run work that no caller waits for; ``close`` waits for it."""
        task = asyncio.get_running_loop().create_task(_run_and_log_failure(work))
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)
        return task

    async def wait_for_background_tasks(self) -> None:
        while self._background_tasks:
            await asyncio.wait(self._background_tasks)


async def _run_and_log_failure(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001  permits expire anyway
        emit("loop.failed", loop="limits", error=describe_exception(error))


DEFAULT_BLOCK_S = 1.0  # the block after a throttled call without Retry-After
MAX_BLOCK_S = 7 * 86_400.0


class ThrottledQueue(Protocol):
    """The queue of the throttled calls."""

    name: str
    key: str


class ThrottleReporter:
    """Reports throttled calls. Calls that are throttled during a report are reported together in the next one."""

    def __init__(self, line: ThrottledQueue, trips: LimiterClient) -> None:
        self._queue = line
        self._client = trips
        self.unreported = 0
        self._block_s = 0.0
        self._last_started_at = float("-inf")

    def add_throttled_call(self, after: object, started: float) -> float:
        """Add a throttled call that started at ``started``; return the seconds of the block."""
        seconds = _parse_block_s(after)
        self.unreported += 1
        self._block_s = max(self._block_s, seconds)
        self._last_started_at = max(self._last_started_at, started)
        if self.unreported == 1:
            self._client.run_in_background(self._report_throttling())
        return seconds

    async def _report_throttling(self) -> None:
        queue = self._queue
        while self.unreported:
            times, after, age = self.unreported, self._block_s, time.monotonic() - self._last_started_at
            self._block_s, self._last_started_at = 0.0, float("-inf")
            try:
                result = await self._client.report_throttled(queue.name, queue.key, after=after, age=age, times=times)
            finally:
                self.unreported -= times
            if result is None:
                continue
            emit("limiter.blocked", limiter=queue.name, key=queue.key, seconds=round(result.blocked, 1), refusals=times)
            if result.cuts:
                emit("limiter.slowed", limiter=queue.name, key=queue.key, share=round(result.share, 3))


def _parse_block_s(after: object) -> float:
    """Return the seconds of a block; the default if the handler's value is not a finite number."""
    if isinstance(after, int | float) and -math.inf < after < math.inf:  # isfinite() fails for very large integers
        return clamp(after, 0.0, MAX_BLOCK_S)
    return DEFAULT_BLOCK_S
