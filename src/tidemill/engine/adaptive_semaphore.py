"""The concurrency slots of a kind in one process, whose number adapts to the responses."""

import asyncio
import time
from collections import Counter

from tidemill.core.outcome import Outcome, Retry
from tidemill.engine.adaptive.concurrency_controller import ConcurrencyController, ObservationWindow
from tidemill.telemetry.events import emit

START_CREDIT_S = 0.005  # compensates for inexact timers: a late start does not delay the next ones
CODE_ERROR_TYPES = (NameError, ImportError, SyntaxError, NotImplementedError)  # caused by code, rarely by an item
MAX_CODE_ERROR_BATCHES = 64  # consecutive failed batches: if only single items were invalid, one would have succeeded
REPORTED_CHANGE_SHARE = 0.25  # smaller changes are not reported


class AdaptiveSemaphore:
    """The concurrency slots of a kind, shared by the lanes of a process. A controller changes their number.

    While no call is throttled, no caller waits: a slot is acquired once for many items, and an item costs two
    additions and two comparisons. If items of several users wait, the user with the fewest slots gets the next one.
    """

    def __init__(self, kind: str, max_slots: int, now: float | None = None) -> None:
        self.kind = kind
        self.controller = ConcurrencyController.start_at_maximum(max_slots)
        self.max_slots = self.slots = max_slots
        self.start_gap_s = 0.0  # between the starts of two items; 0 while concurrency is not reduced
        self.backoff_factor = 1.0  # multiplies the backoff of retries
        self.throttled_total = 0  # throttled calls so far
        self._code_error_batches = 0
        self._slots_in_use = 0
        self._slots_by_user: Counter[int] = Counter()
        self._waiters: list[tuple[asyncio.Future[bool], object, int]] = []  # with the batch and its user
        self.has_starved_user = False  # a user without a slot waits: another user's slot is released after its item
        self._reported_slots = max_slots
        self._next_start_at = float("-inf")
        self._last_cut_at = float("-inf")
        self._start_new_window(time.monotonic() if now is None else now)

    @property
    def should_yield_slot(self) -> bool:
        """Whether a slot should be released after an item, because slots were reduced or other batches wait for one."""
        return self._slots_in_use > self.slots or (self.start_gap_s > 0 and bool(self._waiters))

    async def acquire(self, owner: object, user_id: int = 0) -> bool:
        """Acquire a slot, waiting if necessary; return False if ``cancel_waiters`` was called for the owner."""
        if self._slots_in_use < self.slots and not self._waiters:
            self._slots_in_use += 1
            self._slots_by_user[user_id] += 1
            return True
        slot: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waiter = (slot, owner, user_id)
        self._waiters.append(waiter)
        self.has_starved_user = self.has_starved_user or not self._slots_by_user[user_id]
        try:
            return await slot
        except asyncio.CancelledError:
            if not slot.cancelled() and slot.result():
                self.release(user_id)  # the slot was assigned at the same time
            elif waiter in self._waiters:
                self._waiters.remove(waiter)
                self._admit_waiters()
            raise

    def release(self, user_id: int = 0) -> None:
        self._slots_in_use -= 1
        self._slots_by_user[user_id] -= 1
        if not self._slots_by_user[user_id]:
            del self._slots_by_user[user_id]
        if self._waiters:
            self._admit_waiters()

    def cancel_waiters(self, owner: object) -> None:
        """End the waits of one owner."""
        for waiter in [waiter for waiter in self._waiters if waiter[1] is owner]:
            self._waiters.remove(waiter)
            if not waiter[0].done():
                waiter[0].set_result(False)
        self._admit_waiters()

    def _admit_waiters(self) -> None:
        """Give free slots to waiters: first to the user with the fewest slots, then in the order of arrival."""
        held = self._slots_by_user
        while self._waiters and self._slots_in_use < self.slots:
            waiter = min(self._waiters, key=lambda waiter: held[waiter[2]])
            self._waiters.remove(waiter)
            if not waiter[0].done():  # a cancelled waiter is still queued
                self._slots_in_use += 1
                held[waiter[2]] += 1
                waiter[0].set_result(True)
        self.has_starved_user = any(not held[waiter[2]] for waiter in self._waiters)

    def record_batch_end_and_detect_code_errors(self, error: BaseException | None) -> bool:
        """Record the end of a batch; return whether too many failed because of the handler's code to split batches."""
        self._code_error_batches = self._code_error_batches + 1 if isinstance(error, CODE_ERROR_TYPES) else 0
        return self._code_error_batches > MAX_CODE_ERROR_BATCHES

    def record_outcome(self, outcome: Outcome, started: float, now: float) -> bool:
        """Record an outcome; return whether it was throttled.

        A call that started before the last cut does not cause another cut.
        """
        is_throttled = False
        if not isinstance(outcome, Retry):
            self._settled += 1
            self._settled_s += now - started
        elif outcome.throttled:
            is_throttled = True
            self.throttled_total += 1
            self._throttled += started > self._last_cut_at
        else:
            self._failed += 1
        if is_throttled or now >= self._window_ends_at:
            self._adjust_slots_if_window_complete(started, now)
        return is_throttled

    def reserve_start(self, now: float) -> float:
        """Reserve the next start and return the seconds until it; the caller must start an item then."""
        start = max(self._next_start_at, now - START_CREDIT_S)
        self._next_start_at = start + self.start_gap_s
        return start - now

    def slot_cooldown_s(self, after: float | None) -> float:
        """Return how long the slot of a throttled item stays empty; ``after`` is the Retry-After of the service."""
        return self.controller.slot_cooldown_s(after)

    def _start_new_window(self, now: float) -> None:
        self._window_opened_at = now
        self._window_ends_at = now + self.controller.window_length_s
        self._settled = self._throttled = self._failed = 0
        self._settled_s = 0.0

    def _build_current_window(self, now: float) -> ObservationWindow:
        return ObservationWindow(
            now - self._window_opened_at, self._settled, self._settled_s, self._throttled, self._failed
        )

    def _adjust_slots_if_window_complete(self, started: float, now: float) -> None:
        """If the window has enough responses, adjust the slots and open the next window."""
        window = self._build_current_window(now)
        if window.answers == 1 and started > self._window_ends_at:  # the kind was idle: the window starts here
            self._window_opened_at, self._window_ends_at = started, started + self.controller.window_length_s
            return
        if not self.controller.is_window_complete(window):
            return
        before, self.controller = self.controller, self.controller.adjust_to_window(window)
        if self.controller.level < before.level:
            self._last_cut_at = now
        self.slots, self.start_gap_s = self.controller.slots, self.controller.start_gap_s
        self.backoff_factor = self.controller.error_rate.backoff_factor
        self._start_new_window(now)
        self._admit_waiters()
        self._report_large_slot_change()

    def _report_large_slot_change(self) -> None:
        was, now = self._reported_slots, self.slots
        if abs(now - was) > REPORTED_CHANGE_SHARE * was or (now != was and self.max_slots in (was, now)):
            self._reported_slots = now
            emit("concurrency.changed", kind=self.kind, was=was, now=now, reason=self.controller.reason)
