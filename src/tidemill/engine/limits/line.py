"""Those of one process who wait for one limiter, or for one member of it."""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass

from tidemill.domain.decide import describe
from tidemill.domain.limits import Limiter
from tidemill.domain.limits.stock import Moment, Stock
from tidemill.domain.measure import clamp, moving
from tidemill.engine.limits.refusals import Refusals
from tidemill.engine.limits.trips import PATIENCE_S, REACH_S, Trips
from tidemill.store.limiters import Answer
from tidemill.telemetry.events import emit

MOST_AT_ONCE = 1_000
AFTER_AN_ERROR_S = 1.0
TIMER_S = 0.0005  # timers of some loops are rounded to milliseconds: rather late than too early
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.02, 0.5  # for a place that somebody else has


@dataclass(slots=True)
class _Waiter:
    answer: "asyncio.Future[Moment | float]"
    run: object
    patience: float
    in_line: bool


class Line:
    """First come, first served. Nothing is asked of the database while there are permits in hand."""

    def __init__(self, trips: Trips, limiter: Limiter, key: str) -> None:
        self.name, self.key = limiter.name, key
        self._trips = trips
        self._pace = limiter.pace
        self._slack = limiter.slack_s
        self._has_places = limiter.concurrency is not None
        self._stock = Stock()
        self._waiting: deque[_Waiter] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ask_at = self._asked_at = self._opens_at = self._blocked_until = float("-inf")
        self._low = 0  # permits in hand below which more are fetched
        self._runs = 0
        self._used = 0
        self.permits = 0  # since it was last told
        self.waited_s = 0.0
        self._usage: float | None = None  # permits a second
        self._held = self._in_use = 0
        self._crowded = False
        self._stay_s: float | None = None  # how long a place is used
        self._refusals = Refusals(self, trips)

    # Those who want to begin.

    async def enter(self, run: object, *, patience: float = PATIENCE_S, in_line: bool = False) -> float | None:
        """None when a call may begin, now. Else the seconds until it may, more than ``patience``; 0 when dismissed.

        ``patience`` is for blocks; with ``in_line``, for those who wait before us too.
        """
        first = False
        while True:
            now = time.monotonic()
            if (first or not self._waiting) and self._take(now) is not None:
                if len(self._stock) < self._low and now >= self._ask_at and self._asking is None:
                    self._turn()
                return None
            wait = self._outlook(now, in_line=in_line)
            if wait > patience:
                return wait
            answer = await self._wait(run, patience, in_line=in_line, first=first)
            if isinstance(answer, float):
                return answer
            if answer.ends >= time.monotonic():
                return None
            self._in_use -= self._has_places  # the loop did not turn in time: that permit is void
            first = True

    async def _wait(self, run: object, patience: float, *, in_line: bool, first: bool) -> Moment | float:
        waiter = _Waiter(asyncio.get_running_loop().create_future(), run, patience, in_line)
        if first:
            self._waiting.appendleft(waiter)
        else:
            self._waiting.append(waiter)
        self._turn()
        since = time.monotonic()
        try:
            answer = await waiter.answer
            self.waited_s += time.monotonic() - since
            return answer
        except asyncio.CancelledError:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            elif waiter.answer.done() and not waiter.answer.cancelled() and isinstance(waiter.answer.result(), Moment):
                self.leave(None)
            raise

    def leave(self, seconds: float | None) -> None:
        """A call that was let in is over, and took so long."""
        if not self._has_places:
            return
        self._in_use -= 1
        if seconds is not None:
            self._stay_s = moving(self._stay_s, seconds)
        if not self._waiting:
            self._let_go(self._held - self._in_use)
        elif self._crowded:  # others wait as we do: what is free is for everybody
            self._let_go(1)
            self._ask_at = max(self._ask_at, time.monotonic() + SHORTEST_LOOK_S)
        self._turn()

    def join(self) -> None:
        """A run of many calls begins: permits may be fetched ahead."""
        self._runs += 1

    def part(self) -> None:
        self._runs -= 1
        if not self._runs:
            self._low = 0
            self._tidy()

    def dismiss(self, run: object) -> None:
        """Those of a run who wait need no permit any more."""
        for waiter in [waiter for waiter in self._waiting if waiter.run is run]:
            self._waiting.remove(waiter)
            if not waiter.answer.done():
                waiter.answer.set_result(0.0)
        self._tidy()

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._runs or self._in_use or self._asking or self._refusals.untold)

    def blocked_s(self) -> float:
        return max(0.0, self._blocked_until - time.monotonic())

    @property
    def pace(self) -> float | None:
        """Permits a second, for everybody together; None if they are not counted."""
        return self._pace

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # The permits.

    def _take(self, now: float) -> Moment | None:
        if now < self._blocked_until or (self._has_places and self._in_use >= self._held):
            return None
        moment = Moment(now, math.inf, now) if self._pace is None else self._stock.use(now)
        if moment is not None:
            self._in_use += self._has_places
            self._used += 1
            self.permits += 1
        return moment

    def _outlook(self, now: float, *, in_line: bool) -> float:
        if not in_line or not self._pace:
            return max(0.0, self._blocked_until - now)
        before = max(0, len(self._waiting) - len(self._stock)) / self._pace
        return max(0.0, self._blocked_until - now, self._opens_at - now) + before

    def _turn(self) -> None:
        """Let in whoever may; ask for more if there is need; come again when there is something to do."""
        now = time.monotonic()
        self._stock.drop_void(now)
        if now < max(self._blocked_until, self._opens_at):
            self._answer_impatient(now)
        while self._waiting:
            if self._waiting[0].answer.done():
                self._waiting.popleft()
                continue
            moment = self._take(now)
            if moment is None:
                break
            self._waiting.popleft().answer.set_result(moment)
        if self._asking is None and now >= max(self._ask_at, self._blocked_until) and self._wants_more():
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        self._arm()

    def _answer_impatient(self, now: float) -> None:
        blocked, opens = self._blocked_until - now, self._opens_at - now
        waits = [(waiter, max(blocked, opens) if waiter.in_line else blocked) for waiter in self._waiting]
        for waiter, wait in waits:
            if waiter.patience < wait:
                self._waiting.remove(waiter)
                if not waiter.answer.done():
                    waiter.answer.set_result(wait)

    def _wants_more(self) -> bool:
        waiting = len(self._waiting)
        if self._has_places and waiting > self._held - self._in_use:
            return True
        return self._pace is not None and (waiting > len(self._stock) or len(self._stock) < self._low)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        begins = self._stock.begins_at
        times = [] if begins is None or (self._has_places and self._in_use >= self._held) else [begins]
        if self._asking is None and self._wants_more():
            times.append(self._ask_at)
        if times:
            wait = max(min(times), self._blocked_until) - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait) + TIMER_S, self._turn)

    async def _ask(self) -> None:
        try:
            wanted = self._plan(time.monotonic())
            places = max(0, len(self._waiting) - (self._held - self._in_use)) if self._has_places else 0
            idle = self._held - self._in_use
            self.key, answer = await self._trips.take(self.name, self.key, wanted=wanted, places=places, idle=idle)
            self._hear(answer, time.monotonic(), lacks=places > answer.places)
        except Exception as error:  # noqa: BLE001  those who wait must not wait for ever
            emit("loop.failed", loop="limits", error=describe(error))
            self._ask_at = time.monotonic() + AFTER_AN_ERROR_S
        finally:
            self._asking = None
        self._turn()
        if not self._waiting and not self._runs:
            self._tidy()

    def _plan(self, now: float) -> int:
        """How many permits to ask for: for those who wait, and for those who will until we ask again."""
        if self._pace is None:
            return 0
        self._usage = moving(self._usage, self._used / max(now - self._asked_at, 0.001))
        self._used, self._asked_at = 0, now
        ahead = math.ceil(self._usage * REACH_S) if self._runs else 0
        self._low = ahead // 2
        return int(clamp(len(self._waiting) + ahead - len(self._stock), 1, MOST_AT_ONCE))

    def _hear(self, answer: Answer, now: float, *, lacks: bool) -> None:
        self._held += answer.places
        self._crowded = answer.crowded or lacks
        self._pace, self._slack = answer.pace, answer.slack
        if self._trips.fit is not None:
            self._stock.add(answer.starts, self._trips.fit, answer.slack)
        self._ask_at = now
        if answer.blocked > 0:
            self._block(now + answer.blocked)
        self._opens_at = now + answer.wait
        if answer.wait > 0:
            self._ask_at = now + min(answer.wait, answer.blocked + PATIENCE_S)
        elif lacks and not answer.starts:
            self._ask_at = now + clamp(self._stay_s or 0.0, SHORTEST_LOOK_S, LONGEST_LOOK_S)

    def _tidy(self) -> None:
        """Give back what nobody here wants."""
        if not self._waiting and not self._runs and len(self._stock):
            self._trips.give_back(self.name, self.key, self._stock.empty(), self._slack)
        if not self._waiting:
            self._let_go(self._held - self._in_use)

    def _let_go(self, places: int) -> None:
        if places > 0:
            self._held -= places
            self._trips.leave(self.name, self.key, places)

    # Refusals.

    def refused(self, after: float | None, started: float) -> None:
        """Whoever is called refused a call that began then: nobody begins for ``after`` seconds."""
        self._block(time.monotonic() + self._refusals.add(after, started))
        self._turn()

    def _block(self, until: float) -> None:
        self._blocked_until = max(self._blocked_until, until)
        self._stock.empty()
