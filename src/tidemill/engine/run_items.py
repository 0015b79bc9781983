"""Running items through a handler. Exceptions become outcomes here, and in engine/batchwise.py."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tidemill.core.decide import Verdict, make_timeout_retry, outcome_from_defect
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Outcome, Retry, Wait
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.flusher import Flusher
from tidemill.engine.verdicts import make_verdict, outcome_from_error, to_outcome
from tidemill.limits.admission import RateLimited, is_throttle_reported
from tidemill.limits.limiter_queue import LimiterQueue

EVENT_LOOP_YIELD_S = 0.02  # a handler that never waits must still let heartbeats and flushes through
ITEM_TIMEOUT_POLL_S = 0.25
EVENT_LOOP_LAG_S = 0.1  # the event loop answers later than this: somebody blocked it


class ItemExecutor:
    """The items of one batch through a per-item handler, as many at a time as its crew has places."""

    def __init__(
        self, context: EngineContext, handler: Handler, page: LaneState, flusher: Flusher, *, isolated: bool
    ) -> None:
        self._context = context
        self._handler = handler
        self._lane_state = page
        self._flusher = flusher
        self._semaphore = context.get_semaphore(handler)
        self._admission = context.limiter_registry.make_admission(handler)
        self._job_limiter = flusher.lease.limiter
        self._queue_by_slot: dict[int, LimiterQueue] = {}  # where the item of a slot was let in
        self._max_slots = 1 if isolated else self._semaphore.max_slots
        self._pending_items: deque[Item] = deque()
        self._running_by_slot: dict[int, tuple[asyncio.Task[None], float]] = {}
        self._timed_out_slots: set[int] = set()
        self._cooldown_by_slot: dict[int, float] = {}  # slots whose item was refused
        self._starts_ended = asyncio.Event()  # nothing is left to start
        self._yielded_at = time.monotonic()
        self._call_handler: Callable[[Item], Awaitable[Any]] = (
            handler.call if handler.mode == "async" else self._call_in_thread
        )

    async def run(self, items: Sequence[Item]) -> None:
        """Every item, until done or stopped; what is left over has no verdict."""
        entrance = self._admission
        if entrance is None:
            self._pending_items.extend(items)
            await self._run_slots()
            return
        self._pending_items.extend(entrance.interleave_members(items))
        entrance.enter_run()
        try:
            await self._run_slots()
        finally:
            entrance.leave_run()

    async def _run_slots(self) -> None:
        async with asyncio.TaskGroup() as group:
            watch = group.create_task(self._enforce_timeouts())
            async with asyncio.TaskGroup() as runners:
                for slot in range(min(self._max_slots, len(self._pending_items))):
                    runners.create_task(self._run_slot(slot))
            watch.cancel()

    async def _run_slot(self, slot: int) -> None:
        """Items one after another, whenever there is a place in the crew."""
        crew, todo, context = self._semaphore, self._pending_items, self._context
        while todo and not context.is_stopping and not self._starts_ended.is_set() and await crew.acquire(self):
            try:
                await self._process_items(slot)
            finally:
                crew.release()
        self._stop_starting()

    async def _process_items(self, slot: int) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we run in one
        page, flusher, todo, crew = self._lane_state, self._flusher, self._pending_items, self._semaphore
        attempt = self._attempt_item if self._admission is None else self._attempt_with_permit
        while todo and not self._context.is_stopping and not self._starts_ended.is_set():
            if crew.start_gap_s and not await self._wait_for_start():
                return
            verdict = await attempt(todo.popleft(), slot, task)
            if verdict is None:
                page.free_slot(slot)
                return
            while not page.record_verdict(verdict):
                page.mark_item_answered(slot)
                await flusher.wait_until_drained()
            page.free_slot(slot)
            if flusher.add(verdict):
                await flusher.wait_for_room()
            elif time.monotonic() - self._yielded_at > EVENT_LOOP_YIELD_S:
                await asyncio.sleep(0)
                self._yielded_at = time.monotonic()
            if self._cooldown_by_slot:
                await self._cool_down(self._cooldown_by_slot.pop(slot, 0.0))
            if crew.start_gap_s and crew.should_yield_slot:
                return

    async def _wait_for_start(self) -> bool:
        """Wait for the next start, where starts are held apart; whether there is still something to start then."""
        await self._cool_down(self._semaphore.reserve_start(time.monotonic()))
        return not self._starts_ended.is_set() and bool(self._pending_items)

    async def _cool_down(self, seconds: float) -> None:
        """Wait, but not longer than there is something to wait for."""
        if seconds > 0 and self._pending_items:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._starts_ended.wait()

    def _stop_starting(self) -> None:
        """Nothing further is started: nobody need wait for a place, or rest."""
        self._starts_ended.set()
        self._semaphore.cancel_waiters(self)

    def _release_waiting(self) -> None:
        """The same, also for items that wait to be let in: they go back."""
        self._stop_starting()
        if self._admission is not None:
            self._admission.cancel_waiters(self)

    async def _attempt_with_permit(self, item: Item, slot: int, task: asyncio.Task[None]) -> Verdict | None:
        """The same when the limiter lets it begin. None also when nobody may begin for long: the rest goes back."""
        entrance = self._admission
        assert entrance is not None  # noqa: S101  else nobody comes here
        if item.defect is not None:
            return await self._attempt_item(item, slot, task)
        try:
            line = entrance.get_item_queue(item)
        except Exception as error:  # noqa: BLE001  the user's function: it is the item's error
            return make_verdict(item, outcome_from_error(error, self._handler), self._handler, 0)
        wait = await self._acquire_permit(line)
        if wait is None:
            self._queue_by_slot[slot], started = line, time.monotonic()
            try:
                return await self._attempt_item(item, slot, task)
            finally:
                line.release(time.monotonic() - started)
        if wait and entrance.has_members and not self._context.is_stopping:
            return make_verdict(item, RateLimited(line, wait), self._handler, 0)
        self._release_waiting()  # it has no verdict, and the rest of the batch has none
        return None

    async def _acquire_permit(self, line: LimiterQueue) -> float | None:
        """None when a call may begin. In a line of its own an item does not wait for longer than a batch may take."""
        if self._admission is not None and self._admission.has_members:
            return await line.acquire(self, max_wait_s=self._context.target_batch_ms / 1000, counts_queue=True)
        return await line.acquire(self)

    async def _attempt_item(self, item: Item, slot: int, task: asyncio.Task[None]) -> Verdict | None:
        """One attempt at one item; None when it was cut short because the worker stops, or its job must wait."""
        if item.defect is not None:
            return make_verdict(item, outcome_from_defect(item.defect), self._handler, 0)
        started = time.monotonic()
        self._lane_state.start_item(slot, item.seq, item.attempt)
        self._running_by_slot[slot] = (task, started)
        try:
            outcome = to_outcome(await self._call_handler(item))
        except asyncio.CancelledError as error:
            if slot in self._timed_out_slots:
                if task.uncancel():  # the lease was lost in the same moment
                    raise
                outcome = make_timeout_retry(self._handler.timeout or 0)
            elif self._context.is_grace_over:
                return None
            elif task.cancelling():
                raise
            else:  # nobody cancelled us: it is the handler's own
                outcome = outcome_from_error(error, self._handler)
        except BaseException as error:  # noqa: BLE001  the border: whatever it is, it is an outcome
            outcome = outcome_from_error(error, self._handler)
        finally:
            del self._running_by_slot[slot]
            if slot in self._timed_out_slots:
                self._timed_out_slots.remove(slot)
                if task.cancelling():  # the handler answered its cancellation: the next item is not cancelled
                    task.uncancel()
        return self._conclude_attempt(item, outcome, slot, started)

    def _conclude_attempt(self, item: Item, outcome: Outcome, slot: int, started: float) -> Verdict | None:
        if isinstance(outcome, RateLimited) and outcome.limiter is not None and outcome.limiter == self._job_limiter:
            self._release_waiting()  # as in line: the job is not claimed until its limiter lets somebody begin
            return None
        now, crew = time.monotonic(), self._semaphore
        try:
            refused = self._record_outcome(outcome, slot, started, now)
        except Exception:  # noqa: BLE001  a user's object may raise anything: what becomes of it is said below
            refused = False
        duration_ms = int((now - started) * 1000)
        verdict = make_verdict(
            item, outcome, self._handler, duration_ms, self._flusher.learned_columns, crew.retry_spacing
        )
        if refused:
            said_when = getattr(outcome, "after", None) is not None
            self._cooldown_by_slot[slot] = crew.slot_cooldown_s(verdict.delay if said_when else None)
        return verdict

    def _record_outcome(self, outcome: Outcome, slot: int, started: float, now: float) -> bool:
        """Whether the slot should rest: the item was refused, and no limiter sees to it that nobody asks again."""
        if not isinstance(outcome, Retry):
            return self._semaphore.record_outcome(outcome, started, now)
        if isinstance(outcome, Wait) or (outcome.throttled and is_throttle_reported(outcome)):
            return False
        line = self._queue_by_slot.get(slot)
        if line is None or not outcome.throttled:
            return self._semaphore.record_outcome(outcome, started, now)
        line.report_throttled(outcome.after, started)
        return False

    async def _enforce_timeouts(self) -> None:
        """Cancel async items that are over their time; let everything go when the grace is over.

        A handler that does not yield to this is the parent's business: it sees the same start in the logbook.
        """
        timeout = self._handler.timeout
        pause = min(ITEM_TIMEOUT_POLL_S, (timeout or ITEM_TIMEOUT_POLL_S) / 4)
        while True:
            slept = time.monotonic()
            await asyncio.sleep(pause)
            if self._context.is_stopping:
                self._release_waiting()
            now = time.monotonic()
            if now - slept > pause + EVENT_LOOP_LAG_S:
                self._credit_blocked_time(now - slept)
            for slot, (task, started) in list(self._running_by_slot.items()):
                if self._context.is_grace_over:
                    task.cancel()
                elif (
                    self._handler.mode == "async"
                    and timeout
                    and now - started > timeout
                    and slot not in self._timed_out_slots
                ):
                    self._timed_out_slots.add(slot)
                    task.cancel()

    def _credit_blocked_time(self, seconds: float) -> None:
        """Time in which one item blocked the whole process is not charged to those beside it."""
        for slot, (task, started) in self._running_by_slot.items():
            self._running_by_slot[slot] = (task, started + seconds)
            self._lane_state.extend_item_time(slot, seconds)

    async def _call_in_thread(self, item: Item) -> Outcome:
        threads = self._context.get_thread_pool(self._handler)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, self._call_guarded, item)
        except asyncio.CancelledError:
            self._context.has_abandoned_thread = True
            raise

    def _call_guarded(self, item: Item) -> Outcome:
        """In the thread: some exceptions (StopIteration) cannot be carried out of it."""
        try:
            return to_outcome(self._handler.call(item))
        except BaseException as error:  # noqa: BLE001  the border: whatever it is, it is an outcome
            return outcome_from_error(error, self._handler)
