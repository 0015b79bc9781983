"""Those of one process who wait for one limiter, or for one member of it."""

import asyncio
import math
import time
from collections import deque

from tidemill.domain.decide import describe
from tidemill.domain.limits import Limiter
from tidemill.domain.limits.stock import Moment, Stock
from tidemill.domain.measure import clamp, moving
from tidemill.engine.limits.places import SHORTEST_LOOK_S, Places
from tidemill.engine.limits.refusals import Refusals
from tidemill.engine.limits.trips import PATIENCE_S, REACH_S, Trips
from tidemill.engine.limits.turns import Turns, Waiter
from tidemill.store.limiters import Answer
from tidemill.telemetry.events import emit

MOST_AT_ONCE = 1_000
AFTER_AN_ERROR_S = 1.0
TIMER_S = 0.0005  # timers of some loops are rounded to milliseconds: rather late than too early


class Line:
    """First come, first served. Nothing is asked of the database while there are permits in hand."""

    def __init__(self, trips: Trips, limiter: Limiter, key: str) -> None:
        self.name, self.key, self._member = limiter.name, key, key
        self._trips = trips
        self._pace = limiter.pace
        self._slack = limiter.slack_s
        self._places = Places(counted=limiter.concurrency is not None)
        self._stock = Stock()
        self._waiting: deque[Waiter] = deque()
        self._asking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ask_at = self._asked_at = self._opens_at = self._blocked_until = float("-inf")
        self._turns = Turns()
        self._refused = 0  # since the process began
        self._low = 0  # permits in hand below which more are fetched
        self._runs = 0
        self._used = 0
        self.permits = 0  # since it was last told
        self.waited_s = 0.0
        self._usage: float | None = None  # permits a second
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
                self.look_again()
                return self._turns.book(now, wait, self._pace if in_line else None)
            answer = await self._wait(run, patience, in_line=in_line, first=first)
            if isinstance(answer, float):
                return answer
            if answer.ends >= time.monotonic():
                return None
            self._places.in_use -= 1  # the loop did not turn in time: that permit is void
            first = True

    async def _wait(self, run: object, patience: float, *, in_line: bool, first: bool) -> Moment | float:
        waiter = Waiter(asyncio.get_running_loop().create_future(), run, patience, in_line)
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
        places = self._places
        places.left(seconds)
        if not places.counted:
            return
        if not self._waiting:
            places.let_go(places.free)
        elif places.crowded:  # others wait as we do: what is free is for everybody
            places.let_go(min(1, places.free))
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
        places = self._places.in_use or self._places.untold
        return not (self._waiting or self._runs or places or self._asking or self._refusals.untold)

    def blocked_s(self) -> float:
        return max(0.0, self._blocked_until - time.monotonic())

    def look_again(self) -> None:
        """Of a block that somebody may have lifted meanwhile: once in a while, and only if somebody comes."""
        if self._ask_at <= time.monotonic() < self._blocked_until:
            self._set_out()

    @property
    def pace(self) -> float | None:
        """Permits a second, for everybody together; None if they are not counted."""
        return self._pace

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # The permits.

    def _take(self, now: float) -> Moment | None:
        if now < self._blocked_until or self._places.is_full:
            return None
        moment = Moment(now, math.inf, now) if self._pace is None else self._stock.use(now)
        if moment is not None:
            self._places.in_use += 1
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
        if self._places.untold or self._is_to_ask(now):
            self._set_out()
        self._arm()

    def _answer_impatient(self, now: float) -> None:
        blocked, opens = self._blocked_until - now, self._opens_at - now
        waits = [(waiter, max(blocked, opens) if waiter.in_line else blocked) for waiter in self._waiting]
        for waiter, wait in waits:
            if waiter.patience < wait:
                self._waiting.remove(waiter)
                if not waiter.answer.done():
                    waiter.answer.set_result(self._turns.book(now, wait, self._pace if waiter.in_line else None))

    def _wants_more(self) -> bool:
        waiting = len(self._waiting)
        if self._places.lacking(waiting):
            return True
        return self._pace is not None and (waiting > len(self._stock) or len(self._stock) < self._low)

    def _is_to_ask(self, now: float) -> bool:
        return now >= self._ask_at and self._wants_more()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting:
            return
        begins = self._stock.begins_at
        times = [] if begins is None or self._places.is_full else [max(begins, self._blocked_until)]
        if self._asking is None and self._wants_more():
            times.append(self._ask_at)
        elif self._pace is None and not self._places.is_full:
            times.append(self._blocked_until)
        if times:
            wait = min(times) - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait) + TIMER_S, self._turn)

    def _set_out(self) -> None:
        if self._asking is None:
            self._asking = self._trips.beside(self._trip())

    async def _trip(self) -> None:
        """One at a time, so that the row hears of our places in the order in which we had them."""
        try:
            if self._places.untold and not self._is_to_ask(time.monotonic()):
                await self._tell_places()
            else:
                await self._ask()
        except Exception as error:  # noqa: BLE001  those who wait must not wait for ever
            emit("loop.failed", loop="limits", error=describe(error))
            self._ask_at = time.monotonic() + AFTER_AN_ERROR_S
        finally:
            self._asking = None
        self._turn()
        if not self._waiting and not self._runs:
            self._tidy()

    async def _tell_places(self) -> None:
        self._places.untold = False
        await self._trips.leave(self.name, self.key, self._places.held, self._member)

    async def _ask(self) -> None:
        places, refused, untold = self._places, self._refused, self._refusals.untold
        wanted = self._plan(time.monotonic())
        more = places.lacking(len(self._waiting))
        places.untold = False
        told = {"wanted": wanted, "places": more, "held": places.held, "idle": max(0, places.free)}
        self.key, answer = await self._trips.take(self.name, self.key, member=self._member, **told)
        unsure = bool(untold) or refused < self._refused
        self._hear(answer, time.monotonic(), lacks=more > answer.places, refused=unsure)

    def _plan(self, now: float) -> int:
        """How many permits to ask for: for those who wait, and for those who will until we ask again."""
        if self._pace is None:
            return 0
        self._usage = moving(self._usage, self._used / max(now - self._asked_at, 0.001))
        self._used, self._asked_at = 0, now
        ahead = math.ceil(self._usage * REACH_S) if self._runs else 0
        self._low = ahead // 2
        return int(clamp(len(self._waiting) + ahead - len(self._stock), 1, MOST_AT_ONCE))

    def _hear(self, answer: Answer, now: float, *, lacks: bool, refused: bool) -> None:
        """``refused`` says that a call was, of which the row may not have known yet."""
        was = self._places.counted, self._pace is None
        self._places.hear(answer, lacks=lacks)
        self._pace, self._slack = answer.pace, answer.slack
        if self._trips.fit is not None:
            self._stock.add(answer.starts, self._trips.fit, answer.slack)
        if not refused:  # somebody may have lifted the block that we know of
            self._blocked_until = float("-inf")
        self._ask_at = now
        if answer.blocked > 0:
            self._block(now + answer.blocked)
        self._opens_at = now + answer.wait
        if answer.wait > 0:
            self._ask_at = now + min(answer.wait, PATIENCE_S)
        elif not answer.starts and not answer.places and was == (answer.counted, answer.pace is None):
            self._ask_at = now + self._places.look_s
        if now < self._blocked_until:
            self._ask_at = max(self._ask_at, min(self._blocked_until, now + PATIENCE_S))

    def _tidy(self) -> None:
        """Give back what nobody here wants."""
        if not self._waiting and not self._runs and len(self._stock):
            self._trips.give_back(self.name, self.key, self._stock.empty(), self._slack)
        if not self._waiting:
            self._places.let_go(self._places.free)
            if self._places.untold:
                self._set_out()

    # Refusals.

    def refused(self, after: object, started: float) -> None:
        """Whoever is called refused a call that began then: nobody begins for ``after`` seconds."""
        self._refused += 1
        self._block(time.monotonic() + self._refusals.add(after, started))
        self._turn()

    def _block(self, until: float) -> None:
        self._blocked_until = max(self._blocked_until, until)
        self._ask_at = max(self._ask_at, min(until, time.monotonic() + PATIENCE_S))
        self._stock.empty()
