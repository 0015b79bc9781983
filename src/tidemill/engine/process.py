"""Running items through a handler. Exceptions become outcomes here, and in engine/batchwise.py."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemill.domain.decide import Verdict, from_defect, timed_out
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Outcome, Retry, Wait
from tidemill.engine.context import Context
from tidemill.engine.flush import Flusher
from tidemill.engine.limits import Line
from tidemill.engine.limits.entrance import Postponed
from tidemill.engine.limits.permit import is_told
from tidemill.engine.logbook import Page
from tidemill.engine.verdicts import outcome_of, translate, verdict_of

YIELD_S = 0.02  # a handler that never waits must still let heartbeats and flushes through
WATCH_S = 0.25
BLOCKED_S = 0.1  # the event loop answers later than this: somebody blocked it


class ItemRun:
    """The items of one batch through a per-item handler, as many at a time as its crew has places."""

    def __init__(self, context: Context, handler: Handler, page: Page, flusher: Flusher, *, alone: bool) -> None:
        self._context = context
        self._handler = handler
        self._page = page
        self._flusher = flusher
        self._crew = context.crew(handler)
        self._entrance = context.limits.entrance(handler)
        self._waits_for = flusher.lease.limiter
        self._lines: dict[int, Line] = {}  # where the item of a slot was let in
        self._width = 1 if alone else self._crew.high
        self._todo: deque[Item] = deque()
        self._running: dict[int, tuple[asyncio.Task[None], float]] = {}
        self._timed_out: set[int] = set()
        self._rests: dict[int, float] = {}  # slots whose item was refused
        self._over = asyncio.Event()  # nothing is left to start
        self._yielded_at = time.monotonic()
        self._call: Callable[[Item], Awaitable[Any]] = handler.call if handler.mode == "async" else self._in_thread

    async def run(self, items: Sequence[Item]) -> None:
        """Every item, until done or stopped; what is left over has no verdict."""
        entrance = self._entrance
        if entrance is None:
            self._todo.extend(items)
            await self._run()
            return
        self._todo.extend(entrance.in_turn(items))
        entrance.open()
        try:
            await self._run()
        finally:
            entrance.close()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._watch())
            async with asyncio.TaskGroup() as runners:
                for slot in range(min(self._width, len(self._todo))):
                    runners.create_task(self._slot(slot))
            watch.cancel()

    async def _slot(self, slot: int) -> None:
        """Items one after another, whenever there is a place in the crew."""
        crew, todo, context = self._crew, self._todo, self._context
        while todo and not context.stopping and not self._over.is_set() and await crew.enter(self):
            try:
                await self._work(slot)
            finally:
                crew.leave()
        self._end()

    async def _work(self, slot: int) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we run in one
        page, flusher, todo, crew = self._page, self._flusher, self._todo, self._crew
        attempt = self._attempt if self._entrance is None else self._attempt_in_line
        while todo and not self._context.stopping and not self._over.is_set():
            if crew.gap_s and not await self._turn_comes():
                return
            verdict = await attempt(todo.popleft(), slot, task)
            if verdict is None:
                page.free(slot)
                return
            while not page.record(verdict):
                page.item_answered(slot)
                await flusher.drained()
            page.free(slot)
            if flusher.add(verdict):
                await flusher.room()
            elif time.monotonic() - self._yielded_at > YIELD_S:
                await asyncio.sleep(0)
                self._yielded_at = time.monotonic()
            if self._rests:
                await self._rest(self._rests.pop(slot, 0.0))
            if crew.gap_s and crew.crowded:
                return

    async def _turn_comes(self) -> bool:
        """Wait for the next start, where starts are held apart; whether there is still something to start then."""
        await self._rest(self._crew.book(time.monotonic()))
        return not self._over.is_set() and bool(self._todo)

    async def _rest(self, seconds: float) -> None:
        """Wait, but not longer than there is something to wait for."""
        if seconds > 0 and self._todo:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._over.wait()

    def _end(self) -> None:
        """Nothing further is started: nobody need wait for a place, or rest."""
        self._over.set()
        self._crew.dismiss(self)

    def _let_go(self) -> None:
        """The same, also for items that wait to be let in: they go back."""
        self._end()
        if self._entrance is not None:
            self._entrance.dismiss(self)

    async def _attempt_in_line(self, item: Item, slot: int, task: asyncio.Task[None]) -> Verdict | None:
        """The same when the limiter lets it begin. None also when nobody may begin for long: the rest goes back."""
        entrance = self._entrance
        assert entrance is not None  # noqa: S101  else nobody comes here
        if item.defect is not None:
            return await self._attempt(item, slot, task)
        try:
            line = entrance.line_of(item)
        except Exception as error:  # noqa: BLE001  the user's function: it is the item's error
            return verdict_of(item, translate(error, self._handler), self._handler, 0)
        wait = await self._let_in(line)
        if wait is None:
            self._lines[slot], started = line, time.monotonic()
            try:
                return await self._attempt(item, slot, task)
            finally:
                line.leave(time.monotonic() - started)
        if wait and entrance.by_member and not self._context.stopping:
            return verdict_of(item, Postponed(line, wait), self._handler, 0)
        self._let_go()  # it has no verdict, and the rest of the batch has none
        return None

    async def _let_in(self, line: Line) -> float | None:
        """None when a call may begin. In a line of its own an item does not wait for longer than a batch may take."""
        if self._entrance is not None and self._entrance.by_member:
            return await line.enter(self, patience=self._context.slice_ms / 1000, in_line=True)
        return await line.enter(self)

    async def _attempt(self, item: Item, slot: int, task: asyncio.Task[None]) -> Verdict | None:
        """One attempt at one item; None when it was cut short because the worker stops, or its job must wait."""
        if item.defect is not None:
            return verdict_of(item, from_defect(item.defect), self._handler, 0)
        started = time.monotonic()
        self._page.start(slot, item.seq, item.attempt)
        self._running[slot] = (task, started)
        try:
            outcome = outcome_of(await self._call(item))
        except asyncio.CancelledError as error:
            if slot in self._timed_out:
                if task.uncancel():  # the lease was lost in the same moment
                    raise
                outcome = timed_out(self._handler.timeout or 0)
            elif self._context.out_of_grace:
                return None
            elif task.cancelling():
                raise
            else:  # nobody cancelled us: it is the handler's own
                outcome = translate(error, self._handler)
        except BaseException as error:  # noqa: BLE001  the border: whatever it is, it is an outcome
            outcome = translate(error, self._handler)
        finally:
            del self._running[slot]
            if slot in self._timed_out:
                self._timed_out.remove(slot)
                if task.cancelling():  # the handler answered its cancellation: the next item is not cancelled
                    task.uncancel()
        return self._conclude(item, outcome, slot, started)

    def _conclude(self, item: Item, outcome: Outcome, slot: int, started: float) -> Verdict | None:
        if isinstance(outcome, Postponed) and outcome.limiter is not None and outcome.limiter == self._waits_for:
            self._let_go()  # as in line: the job is not claimed until its limiter lets somebody begin
            return None
        now, crew = time.monotonic(), self._crew
        try:
            refused = self._note(outcome, slot, started, now)
        except Exception:  # noqa: BLE001  a user's object may raise anything: what becomes of it is said below
            refused = False
        duration_ms = int((now - started) * 1000)
        verdict = verdict_of(item, outcome, self._handler, duration_ms, self._flusher.columns, crew.spacing)
        if refused:
            said_when = getattr(outcome, "after", None) is not None
            self._rests[slot] = crew.rest_s(verdict.delay if said_when else None)
        return verdict

    def _note(self, outcome: Outcome, slot: int, started: float, now: float) -> bool:
        """Whether the slot should rest: the item was refused, and no limiter sees to it that nobody asks again."""
        if not isinstance(outcome, Retry):
            return self._crew.note(outcome, started, now)
        if isinstance(outcome, Wait) or (outcome.throttled and is_told(outcome)):
            return False
        line = self._lines.get(slot)
        if line is None or not outcome.throttled:
            return self._crew.note(outcome, started, now)
        line.refused(outcome.after, started)
        return False

    async def _watch(self) -> None:
        """Cancel async items that are over their time; let everything go when the grace is over.

        A handler that does not yield to this is the parent's business: it sees the same start in the logbook.
        """
        timeout = self._handler.timeout
        pause = min(WATCH_S, (timeout or WATCH_S) / 4)
        while True:
            slept = time.monotonic()
            await asyncio.sleep(pause)
            if self._context.stopping:
                self._let_go()
            now = time.monotonic()
            if now - slept > pause + BLOCKED_S:
                self._credit(now - slept)
            for slot, (task, started) in list(self._running.items()):
                if self._context.out_of_grace:
                    task.cancel()
                elif (
                    self._handler.mode == "async"
                    and timeout
                    and now - started > timeout
                    and slot not in self._timed_out
                ):
                    self._timed_out.add(slot)
                    task.cancel()

    def _credit(self, seconds: float) -> None:
        """Time in which one item blocked the whole process is not charged to those beside it."""
        for slot, (task, started) in self._running.items():
            self._running[slot] = (task, started + seconds)
            self._page.credit(slot, seconds)

    async def _in_thread(self, item: Item) -> Outcome:
        threads = self._context.threads(self._handler)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, self._guarded, item)
        except asyncio.CancelledError:
            self._context.threads_left = True
            raise

    def _guarded(self, item: Item) -> Outcome:
        """In the thread: some exceptions (StopIteration) cannot be carried out of it."""
        try:
            return outcome_of(self._handler.call(item))
        except BaseException as error:  # noqa: BLE001  the border: whatever it is, it is an outcome
            return translate(error, self._handler)
