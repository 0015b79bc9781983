"""How many items run at once in a process: slots whose number adapts to responses, and the lock of suspect items."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from tidemill.core.arithmetic import clamp, update_moving_average
from tidemill.core.outcome import Outcome, Retry
from tidemill.telemetry.events import emit

ERROR_COUNT_DECAY = 0.7  # factor for the counts of earlier windows
PRIOR_SUCCESSES = 20  # assumed successful attempts, so that two failures are not a spike
USUAL_SHARE_ALPHA = 0.05  # the usual share changes slowly
SPIKE_ERROR_SHARE = 0.2
SPIKE_RATIO = 2.0  # times the usual share
MAX_BACKOFF_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """The share of failed attempts in the last few windows, compared with the usual share of the kind.

    A kind that always fails for a third of its items is not in trouble; a kind that never failed before is. A spike is
    therefore a rise. A share that persists becomes the usual one after about 15 seconds of windows.
    """

    failed: float = 0.0
    attempts: float = 0.0
    usual_share: float | None = None

    def with_attempts(self, *, failed: int, attempts: int) -> "ErrorRate":
        if not attempts:
            return self
        after = ErrorRate(ERROR_COUNT_DECAY * self.failed + failed, ERROR_COUNT_DECAY * self.attempts + attempts)
        return ErrorRate(
            after.failed, after.attempts, update_moving_average(self.usual_share, after.share, USUAL_SHARE_ALPHA)
        )

    @property
    def share(self) -> float:
        return self.failed / (self.attempts + PRIOR_SUCCESSES)

    @property
    def is_spike(self) -> bool:
        return self.share > SPIKE_ERROR_SHARE and self.share > SPIKE_RATIO * (self.usual_share or 0.0)

    @property
    def backoff_factor(self) -> float:
        """The factor for the backoff of retries: 1 while few attempts fail, up to 4 if all fail."""
        return 1 + (MAX_BACKOFF_FACTOR - 1) * clamp((self.share - SPIKE_ERROR_SHARE) / (1 - SPIKE_ERROR_SHARE), 0, 1)


MIN_WINDOW_S = 1.0  # rate limits are counted by the second, or longer
MAX_WINDOW_S = 30.0
MIN_WINDOW_ANSWERS = 10  # responses that complete a window
SPARSE_WINDOW_FACTOR = 5  # with fewer responses, a window is complete after this many times its length
THROTTLE_STORM_WINDOW_S = 0.1  # the window is shorter if most calls are throttled
MAX_START_GAP_S = 10.0
MAX_SLOT_COOLDOWN_S = 10.0
DEFAULT_ROUND_TRIP_S = 1.0
STRONGEST_CUT_FACTOR, WEAKEST_CUT_FACTOR = 0.25, 0.9  # the range of a cut in one window
CALM_LEVEL_FACTOR = 0.95  # of the last level without throttling
THROTTLE_CUT_GAIN = 3.0  # the cut is this many times the throttled share
ERROR_SPIKE_CUT_FACTOR = 0.7
RECOVERY_WINDOWS = 8  # windows to return from a cut to the level that was throttled
STEP_GROWTH_FACTOR = 1.5  # growth of the step above that level
MAX_STEP_SHARE = 0.2  # the largest step of one window, as a share of the level

ChangeReason = Literal["", "throttled", "errors", "calm"]


@dataclass(frozen=True, slots=True)
class ObservationWindow:
    """The responses within a period; ``settled_s`` is the total duration of the settled calls."""

    seconds: float
    settled: int = 0
    settled_s: float = 0.0
    throttled: int = 0
    failed: int = 0

    @property
    def answers(self) -> int:
        return self.settled + self.throttled + self.failed

    @property
    def average_in_flight(self) -> float:
        """The average number of settled items that ran at a time (Little's law)."""
        return self.settled_s / max(self.seconds, 1e-6)


@dataclass(frozen=True, slots=True)
class ConcurrencyController:
    """The number of items of a kind that one process runs at a time.

    ``level`` is a real number. Below ``max_level``, fewer items run at a time, and their starts are spaced evenly by
    one round trip divided by the level. This avoids bursts, and it makes fractions work: 4.5 lies between 4 and 5, and
    0.1 is one item at a time with pauses, for services that allow less than one continuous caller.

    A window with a throttled response cuts the level by 10 % to 75 %. Every other window adds a step: an eighth of the
    way back to the ``ceiling``, the level that was throttled. Above the ceiling the steps grow, so that the controller
    uses a higher limit of the service within seconds.
    """

    max_level: int
    level: float
    ceiling: float
    step: float = 0.0
    last_calm_level: float = 0.0  # the level of the last window without a throttled response
    round_trip_s: float | None = None  # the average duration of a settled item
    error_rate: ErrorRate = field(default_factory=ErrorRate)
    reason: ChangeReason = ""  # the reason of the last change

    @classmethod
    def start_at_maximum(cls, high: int) -> "ConcurrencyController":
        return cls(high, high, high)

    def adjust_to_window(self, window: ObservationWindow) -> "ConcurrencyController":
        errors = self.error_rate.with_attempts(failed=window.failed, attempts=window.answers)
        trip_s = (
            update_moving_average(self.round_trip_s, window.settled_s / window.settled)
            if window.settled
            else self.round_trip_s
        )
        after = replace(self, error_rate=errors, round_trip_s=trip_s, reason="")
        if window.throttled:
            return after.cut_to_level(self._compute_sustainable_level(window), "throttled")
        if errors.is_spike:
            return after.cut_to_level(max(ERROR_SPIKE_CUT_FACTOR * self.level, min(1.0, self.level)), "errors")
        return after.step_up() if window.settled else after

    def _compute_sustainable_level(self, window: ObservationWindow) -> float:
        """Return the level at which no throttling is expected.

        If the last step up caused the throttling, return to slightly below the last calm level. Throttling without a
        step up, or twice in a row, means that the service's limit changed: estimate it from the successful calls.
        """
        if self.reason == "calm":
            return min(WEAKEST_CUT_FACTOR * self.level, CALM_LEVEL_FACTOR * self.last_calm_level)
        through = max(
            window.average_in_flight, self.level * (1 - THROTTLE_CUT_GAIN * window.throttled / window.answers)
        )
        return clamp(through, STRONGEST_CUT_FACTOR * self.level, WEAKEST_CUT_FACTOR * self.level)

    def cut_to_level(self, level: float, reason: ChangeReason) -> "ConcurrencyController":
        """Reduce the level to ``level`` and remember the current one as the ceiling."""
        level = clamp(level, self.min_level, self.max_level)
        return replace(
            self, level=level, ceiling=self.level, step=max(0.0, self.level - level) / RECOVERY_WINDOWS, reason=reason
        )

    def step_up(self) -> "ConcurrencyController":
        """Raise the level by one step, after a window without throttling."""
        if self.level >= self.max_level:
            return self
        step = max(self.step, self.level * (1 - WEAKEST_CUT_FACTOR) / RECOVERY_WINDOWS)
        level = clamp(self.level + step, self.min_level, self.max_level)
        if level > self.ceiling:
            step = min(step * STEP_GROWTH_FACTOR, MAX_STEP_SHARE * level)
        return replace(self, level=level, step=step, last_calm_level=self.level, reason="calm")

    @property
    def min_level(self) -> float:
        """The level at which the gap between starts is MAX_START_GAP_S."""
        return min(1.0, self._effective_round_trip_s / MAX_START_GAP_S)

    @property
    def slots(self) -> int:
        """The number of items that may run at a time, from 1 to ``max_level``."""
        return max(1, math.ceil(self.level))

    @property
    def start_gap_s(self) -> float:
        """The seconds between the starts of two items; 0 while the level is not reduced."""
        return 0.0 if self.level >= self.max_level else min(self._effective_round_trip_s / self.level, MAX_START_GAP_S)

    @property
    def window_length_s(self) -> float:
        """The length of a window: at least one round trip, so that a cut takes effect before the next one."""
        return clamp(self._effective_round_trip_s, MIN_WINDOW_S, MAX_WINDOW_S)

    def is_window_complete(self, window: ObservationWindow) -> bool:
        """Return whether a window has enough responses: one throttled of two is no evidence, forty of fifty are."""
        if window.throttled >= MIN_WINDOW_ANSWERS and window.throttled > window.settled:
            return window.seconds >= max(THROTTLE_STORM_WINDOW_S, self._effective_round_trip_s)
        if window.answers >= MIN_WINDOW_ANSWERS:
            return window.seconds >= self.window_length_s
        return window.seconds >= min(SPARSE_WINDOW_FACTOR * self.window_length_s, MAX_WINDOW_S)

    def slot_cooldown_s(self, after: float | None) -> float:
        """Return how long the slot of a throttled item stays empty: the service's ``after`` seconds, within limits.

        Without ``after``, a pause is needed only while starts are not spaced yet: otherwise slots whose calls are
        throttled immediately would run through one item after another.
        """
        if after is None:
            return min(self.window_length_s, MAX_SLOT_COOLDOWN_S) if self.level >= self.max_level else 0.0
        return clamp(after, min(self._effective_round_trip_s, MAX_SLOT_COOLDOWN_S), MAX_SLOT_COOLDOWN_S)

    @property
    def _effective_round_trip_s(self) -> float:
        return max(DEFAULT_ROUND_TRIP_S if self.round_trip_s is None else self.round_trip_s, 1e-4)


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


class SharedExclusiveLock:
    """A shared or exclusive lock. An isolated item holds it exclusively, so that a crash is certainly its own.

    A waiter for the exclusive lock precedes new shared holders.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._shared_holders = 0
        self._is_exclusive = False
        self._exclusive_waiters = 0

    @asynccontextmanager
    async def hold(self, *, exclusive: bool) -> AsyncIterator[None]:
        if exclusive:
            await self._acquire_exclusive()
        else:
            async with self._changed:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._exclusive_waiters)
                self._shared_holders += 1
        try:
            yield
        finally:
            async with self._changed:
                if exclusive:
                    self._is_exclusive = False
                else:
                    self._shared_holders -= 1
                self._changed.notify_all()

    async def _acquire_exclusive(self) -> None:
        async with self._changed:
            self._exclusive_waiters += 1
            try:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._shared_holders)
            finally:
                self._exclusive_waiters -= 1
                self._changed.notify_all()
            self._is_exclusive = True
