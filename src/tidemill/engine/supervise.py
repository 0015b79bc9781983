"""The parent of a worker: starts children, notices the dead and the stuck, and clears up after them."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from tidemill.domain.crash import Cause, cause_of_death
from tidemill.domain.decide import describe
from tidemill.domain.errors import TidemillError
from tidemill.engine.aftermath import Aftermath
from tidemill.engine.control import Stop, Wake
from tidemill.engine.hand import Command, Hand
from tidemill.engine.service import AFTER_AN_ERROR, Service
from tidemill.store.json import decode
from tidemill.telemetry.events import emit

TICK_S = 0.1
CANNOT_START = 78  # EX_CONFIG: no use in trying again
KILL_AFTER_GRACE_S = 5.0
GIVE_UP_S = 3.0
QUICK_S = 2.0
SLEPT_S = 5.0  # a parent that was stopped itself cannot say who was late


class Supervisor(Service):
    """Keeps so many children alive."""

    name = "supervise"

    def __init__(
        self,
        worker: str,
        aftermath: Aftermath,
        command: Command,
        *,
        processes: int,
        pages: int,
        env: dict[str, str],
        memory_mb: int,
        silence_s: float,
        on_demand: bool = False,
    ) -> None:
        super().__init__()
        self._aftermath = aftermath
        self._spawn: Callable[[int], Hand] = partial(Hand, worker=worker, command=command, pages=pages, env=env)
        self._memory_mb = memory_mb
        self._silence_s = silence_s
        self._on_demand = on_demand
        self._quick_deaths = 0
        self._one_at_a_time = asyncio.Lock()
        self._not_before = 0.0
        self._ticked_at = time.monotonic()
        self._gone: Counter[str] = Counter()
        self._numbers = list(range(processes))
        self.hands: dict[int, Hand] = {}
        self.failure: TidemillError | None = None

    async def tick(self) -> float:
        async with self._one_at_a_time:  # drain() ticks too, while a burial may still be under way
            return await self._tick()

    async def _tick(self) -> float:
        now_ns = time.monotonic_ns()
        just_woke = time.monotonic() - self._ticked_at > SLEPT_S
        self._ticked_at = time.monotonic()
        for hand in list(self.hands.values()):
            dead = hand.reap()
            if dead is not None:
                await self._try_to_bury(hand, *dead, now_ns)
            elif hand.killed_as is None and not just_woke:
                self._kill_if_stuck(hand, now_ns)
        if not self.stopping and time.monotonic() >= self._not_before:
            for number in self._numbers:
                if number not in self.hands:
                    self.hands[number] = self._spawn(number)
        return TICK_S

    def _kill_if_stuck(self, hand: Hand, now_ns: int) -> None:
        if hand.is_stuck(now_ns, self._silence_s):
            hand.kill(Cause.STUCK)
        elif hand.is_overdue:
            hand.kill(Cause.STOPPED)

    def wake_children(self) -> None:
        for hand in self.hands.values():
            if not (self._on_demand and hand.is_idle):
                hand.tell(Wake())

    def wake_child(self, job_id: UUID) -> None:
        """Have one child look at that job first: the one that has most to spare, any of them if several have."""
        if self._on_demand:
            return
        hands = random.sample(list(self.hands.values()), len(self.hands))
        for hand in sorted(hands, key=lambda hand: -hand.idle_lanes):
            if hand.tell(Wake(job_id)):
                return

    @property
    def has_time(self) -> bool:
        """Whether some child could take another batch at once."""
        return any(hand.idle_lanes for hand in self.hands.values())

    def free_hand(self) -> Hand | None:
        """A child that a slice may be asked of."""
        free = [hand for hand in self.hands.values() if hand.is_free]
        return free[0] if free and not self.stopping else None

    @property
    def is_starting(self) -> bool:
        """Whether a child will be there soon."""
        ready = [hand for hand in self.hands.values() if hand.book.is_ready]
        return len(ready) < len(self._numbers) and not self.stopping

    def has(self, hand: Hand) -> bool:
        """Whether a child lives, or is not buried yet."""
        return self.hands.get(hand.number) is hand

    async def drain(self, grace: float) -> None:
        """Stop the children: what they finish in the grace is kept, the rest goes back uncharged."""
        deadline = time.monotonic() + grace + KILL_AFTER_GRACE_S
        for hand in self.hands.values():
            hand.tell(Stop())
        while self.hands and time.monotonic() < deadline + GIVE_UP_S:
            if time.monotonic() > deadline:
                for hand in self.hands.values():
                    hand.kill(Cause.STOPPED)
            # Clearing up needs the database; without it the leases run out by themselves.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.tick(), max(0.1, deadline + GIVE_UP_S - time.monotonic()))
            await asyncio.sleep(TICK_S / 2)

    def lease_ids(self) -> list[UUID]:
        """What the children have in hand, or are about to."""
        pages = [page for hand in self.hands.values() for page in hand.book.pages]
        return [lease_id for page in pages if (lease_id := page.lease_id) is not None]

    def pids(self) -> list[int]:
        """Of the children that live."""
        return [hand.process.pid for hand in self.hands.values() if hand.process.returncode is None]

    def counters(self) -> dict[str, int]:
        """What the children, the dead ones too, have done."""
        total = Counter(self._gone)
        for hand in self.hands.values():
            total.update(hand.book.counters())
        return dict(total)

    def state(self) -> dict[str, Any]:
        """What people see of the children: what they have done, and what their controllers have come to."""
        return {"adaptive": self._adaptive()} | self.counters()

    def _adaptive(self) -> list[dict[str, Any]]:
        notes = [(hand.number, hand.book.note.read()) for hand in self.hands.values()]
        return [{"child": number} | decode(note) for number, note in notes if note is not None]

    async def _try_to_bury(self, hand: Hand, returncode: int, peak_mb: float, now_ns: int) -> None:
        """One that cannot be cleared up after must not keep the others from being started; it is tried again."""
        if time.monotonic() < hand.bury_at:
            return
        try:
            await self._bury(hand, returncode, peak_mb, now_ns)
        except Exception as error:  # noqa: BLE001  whatever it is, it is told
            emit("loop.failed", loop=self.name, error=describe(error))
            hand.bury_at = time.monotonic() + AFTER_AN_ERROR

    async def _bury(self, hand: Hand, returncode: int, peak_mb: float, now_ns: int) -> None:
        in_hand = sum(page.items_in_hand for page in hand.book.pages)
        cause = cause_of_death(
            returncode=returncode,
            by_parent=hand.killed_as,
            in_hand=in_hand,
            peak_rss_mb=peak_mb,
            limit_mb=self._memory_mb,
        )
        name = "child.stopped" if cause is Cause.STOPPED else "child.died"
        emit(name, child=hand.number, pid=hand.process.pid, cause=cause, returncode=returncode, in_hand=in_hand)
        if returncode == CANNOT_START and not in_hand:
            self.failure = TidemillError("a child process could not start; its message is above")
            self.stop()
        await self._aftermath.clear(hand.book, cause, now_ns)
        await self._aftermath.leave_limiters(hand.process.pid)
        self._gone.update(hand.book.counters())
        hand.book.close()
        del self.hands[hand.number]
        self._pace_restarts(hand, quick=cause is Cause.CRASHED and not in_hand)

    def _pace_restarts(self, hand: Hand, *, quick: bool) -> None:
        """A child that dies as soon as it starts, of no item, must not be started in a tight loop."""
        quick = quick and time.monotonic() - hand.started < QUICK_S
        self._quick_deaths = self._quick_deaths + 1 if quick else 0
        if self._quick_deaths > 5:  # noqa: PLR2004
            self._not_before = time.monotonic() + min(5.0, 0.1 * 2 ** (self._quick_deaths - 5))
