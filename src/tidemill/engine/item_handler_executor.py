"""Runs the items of a batch through a per-item handler and converts its exceptions to outcomes."""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from tidemill.core.decide import make_timeout_retry, outcome_from_unparsable_record
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import Done, Outcome
from tidemill.engine.admission import Admission, CallPermit
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.verdicts import outcome_from_error
from tidemill.failpoints import failpoint
from tidemill.limits.limiter_permit import RateLimited, ThrottleReports

EVENT_LOOP_YIELD_S = 0.02  # heartbeats and flushes must run even if a handler never awaits
ITEM_TIMEOUT_POLL_S = 0.25
OVERRUN_FACTOR = 2.0  # after this many times the target duration, a batch starts no more items: others may be idle
EVENT_LOOP_LAG_S = 0.1  # a handler that delays the event loop by more than this has blocked it

# Gets an item, its outcome, the duration in ms and the slot; returns what the slot must await before its next item.
Settle = Callable[[Item, Outcome, int, int], Awaitable[None] | None]
Attempt = tuple[Outcome, int, float]  # outcome, duration in ms, seconds for which the slot must pause


class ItemHandlerExecutor:
    """Runs the items of one batch concurrently, in as many slots as admission allows."""

    def __init__(
        self, context: EngineContext, handler: Handler, lane_state: LaneState, admission: Admission, settle: Settle
    ) -> None:
        """``settle`` gets every outcome."""
        self._context = context
        self._handler = handler
        self._lane_state = lane_state
        self._admission = admission
        self._settle = settle
        self._pending_items: deque[Item] = deque()
        self._running_by_slot: dict[int, tuple[asyncio.Task[None], float]] = {}
        self._cancelled_slots: dict[int, Outcome | None] = {}  # slot -> outcome of its item; None: it is released
        self._yielded_at = time.monotonic()
        self._lane_task: asyncio.Task[Any]

    async def run(self, items: Sequence[Item]) -> None:
        """Run all items. Stop early if the process or the job must stop or the batch takes far too long.

        Items that have not started then stay unsettled.
        """
        self._lane_task = cast("asyncio.Task[Any]", asyncio.current_task())
        self._pending_items.extend(self._admission.interleave_items_by_member(items))
        gate = self._handler.gate
        requests_before = 0 if gate is None else gate.requests
        async with self._admission.admit_calls(), asyncio.TaskGroup() as group:
            timeouts = group.create_task(self._cancel_overdue_items())
            async with asyncio.TaskGroup() as slots:
                for slot in range(min(self._admission.max_slots, len(self._pending_items))):
                    slots.create_task(self._run_slot(slot))
            timeouts.cancel()
        if gate is not None:
            gate.limits_items = gate.requests > requests_before

    async def _run_slot(self, slot: int) -> None:
        """Run items one after another, while there is a concurrency slot."""
        admission, reports = self._admission, ThrottleReports()
        reports.set_as_current()
        while self._pending_items and await admission.acquire_slot():
            try:
                await self._run_items_in_slot(slot, reports)
            finally:
                admission.semaphore.release(admission.owner_id)
        admission.end_waits_for_slot_and_start()

    async def _run_items_in_slot(self, slot: int, reports: ThrottleReports) -> None:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        admission, semaphore, pending, settle = (
            self._admission,
            self._admission.semaphore,
            self._pending_items,
            self._settle,
        )
        while pending and not admission.is_closed:
            if semaphore.start_gap_s and not (await admission.wait_for_start() and pending):
                return
            item = pending.popleft()
            attempt = await self._attempt_item(item, slot, task, reports)
            if attempt is None:
                self._lane_state.free_item_slot(slot)
                return
            failpoint("item.finished")
            outcome, duration_ms, pause_s = attempt
            wait = settle(item, outcome, duration_ms, slot)
            if wait is not None:
                await wait
            if time.monotonic() - self._yielded_at > EVENT_LOOP_YIELD_S:
                await asyncio.sleep(0)
                self._yielded_at = time.monotonic()
            if pause_s and pending:
                await admission.sleep_unless_closed(pause_s)
            if semaphore.has_starved_user or (semaphore.start_gap_s and semaphore.should_yield_slot):
                return

    async def _attempt_item(
        self, item: Item, slot: int, task: asyncio.Task[None], reports: ThrottleReports
    ) -> Attempt | None:
        """Make one attempt at one item; return None if the item must be requeued instead."""
        if item.defect is not None:
            return outcome_from_unparsable_record(item.defect), 0, 0.0
        try:
            admission = self._admission
            permit = admission.admit_without_limiter() or await admission.acquire_call_permit(item)
        except Exception as error:  # noqa: BLE001  the user's limit_by function failed for this item
            return outcome_from_error(error, self._handler, reports, self._context.tracebacks), 0, 0.0
        if not isinstance(permit, CallPermit):
            return None if permit is None else (permit, 0, 0.0)
        reports.clear()
        try:
            outcome = await self._call_handler_for_outcome(item, slot, task, permit.started_at, reports)
            if outcome is None:
                return None
            if isinstance(outcome, RateLimited) and self._admission.is_job_limiter_blocked(outcome):
                self._admission.cancel_waiting_calls()
                return None
            now = time.monotonic()
            return outcome, int((now - permit.started_at) * 1000), permit.report_outcome(outcome, now, reports)
        finally:
            permit.release()

    async def _call_handler_for_outcome(
        self, item: Item, slot: int, task: asyncio.Task[None], started: float, reports: ThrottleReports
    ) -> Outcome | None:
        """Call the handler; return None if the item must be released: it was withdrawn, or the grace period ended."""
        self._lane_state.mark_item_started(slot, item.seq, item.attempt)
        failpoint("item.started")
        self._running_by_slot[slot] = (task, started)
        try:
            if self._handler.mode == "async":
                result: Any = await self._handler.call(item)
            else:
                result = await self._call_in_thread_pool(item, reports)
            return result if isinstance(result, Outcome) else Done(result)
        except asyncio.CancelledError as error:
            if self._lane_task.cancelling():  # the lease was lost
                raise
            if slot in self._cancelled_slots:
                return self._cancelled_slots[slot]
            if self._context.is_grace_over:
                return None
            # The handler raised it, or cancelled its own task.
            return outcome_from_error(error, self._handler, reports, self._context.tracebacks)
        except BaseException as error:  # noqa: BLE001  every exception of a handler is an outcome
            return outcome_from_error(error, self._handler, reports, self._context.tracebacks)
        finally:
            del self._running_by_slot[slot]
            self._cancelled_slots.pop(slot, None)
            if task.cancelling():
                await self._discard_cancellation(task)

    async def _discard_cancellation(self, task: asyncio.Task[None]) -> None:
        """Undo a cancellation that was meant for one item, so that it hits neither the engine nor the next item."""
        while task.uncancel():
            pass
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # before Python 3.13, uncancel() keeps a cancellation that was not delivered yet
        if self._lane_task.cancelling():
            raise asyncio.CancelledError

    async def _call_in_thread_pool(self, item: Item, reports: ThrottleReports) -> Outcome:
        threads = self._context.get_thread_pool(self._handler)
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, self._call_blocking_handler, item, reports)
        except asyncio.CancelledError:
            self._context.has_abandoned_thread = True
            raise

    def _call_blocking_handler(self, item: Item, reports: ThrottleReports) -> Outcome:
        """Call the handler in its thread. A future cannot carry StopIteration, so the outcome is created here."""
        reports.set_as_current()
        try:
            result = self._handler.call(item)
            return result if isinstance(result, Outcome) else Done(result)
        except BaseException as error:  # noqa: BLE001  every exception of a handler is an outcome
            return outcome_from_error(error, self._handler, reports, self._context.tracebacks)

    async def _cancel_overdue_items(self) -> None:
        """Cancel async items that exceed their timeout, and all items when the grace period of a stop ends.

        If a handler does not react, the parent process kills the child: it reads the item's start in shared memory.
        """
        timeout, batch_started = self._handler.timeout, time.monotonic()
        pause = min(ITEM_TIMEOUT_POLL_S, (timeout or ITEM_TIMEOUT_POLL_S) / 4)
        while True:
            slept_at = time.monotonic()
            await asyncio.sleep(pause)
            now = time.monotonic()
            if now - slept_at > pause + EVENT_LOOP_LAG_S:
                self._extend_timeouts_by_loop_lag(now - slept_at)
            is_overrun = now - batch_started > OVERRUN_FACTOR * self._context.settings.worker_target_slice_ms / 1000
            if is_overrun:
                self._admission.end_waits_for_slot_and_start()
            if is_overrun or self._admission.is_job_stopped or self._context.is_stopping:
                self._withdraw_waiting_items()
            for slot, (task, started) in list(self._running_by_slot.items()):
                if self._context.is_grace_over:
                    task.cancel()
                elif (
                    self._handler.mode == "async"
                    and timeout
                    and now - started > timeout
                    and slot not in self._cancelled_slots
                ):
                    self._cancelled_slots[slot] = make_timeout_retry(timeout)
                    task.cancel()

    def _withdraw_waiting_items(self) -> None:
        """Cancel items that wait for the resource of the handler's gate, so that they are released, not started."""
        gate = self._handler.gate
        for slot, (task, _) in self._running_by_slot.items():
            if gate is not None and gate.is_waiting(task) and slot not in self._cancelled_slots:
                self._cancelled_slots[slot] = None
                task.cancel()

    def _extend_timeouts_by_loop_lag(self, seconds: float) -> None:
        """Extend the timeouts of all running items by the time for which one item blocked the event loop."""
        for slot, (task, started) in self._running_by_slot.items():
            self._running_by_slot[slot] = (task, started + seconds)
            self._lane_state.extend_item_timeout(slot, seconds)
