"""Many may pass together, or one alone: a suspect must be the only one whose death it could be.

How many items of a kind one process has in hand: a gate whose width follows a controller.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemill.core.outcome import Outcome, Retry
from tidemill.engine.adaptive.concurrency_controller import ConcurrencyController, ObservationWindow
from tidemill.telemetry.events import emit


class SharedExclusiveLock:
    """A shared and exclusive lock; who waits to be alone goes before newcomers."""

    def __init__(self) -> None:
        self._changed = asyncio.Condition()
        self._shared_holders = 0
        self._is_exclusive = False
        self._exclusive_waiters = 0

    @asynccontextmanager
    async def hold(self, *, exclusive: bool) -> AsyncIterator[None]:
        await (self._acquire_exclusive() if exclusive else self._acquire_shared())
        try:
            yield
        finally:
            await self._release(exclusive)

    async def _acquire_shared(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self._is_exclusive and not self._exclusive_waiters)
            self._shared_holders += 1

    async def _acquire_exclusive(self) -> None:
        async with self._changed:
            self._exclusive_waiters += 1
            try:
                await self._changed.wait_for(lambda: not self._is_exclusive and not self._shared_holders)
            finally:
                self._exclusive_waiters -= 1
                self._changed.notify_all()
            self._is_exclusive = True

    async def _release(self, alone: bool) -> None:
        async with self._changed:
            if alone:
                self._is_exclusive = False
            else:
                self._shared_holders -= 1
            self._changed.notify_all()


START_CREDIT_S = 0.005  # a start that comes late may be made good: timers are not exact
CODE_ERROR_TYPES = (
    NameError,
    ImportError,
    SyntaxError,
    NotImplementedError,
)  # they tell of code, and hardly of an item
MAX_CODE_ERROR_BATCHES = (
    64  # batches in a row that fail so: with one item in a hundred to blame, some would have succeeded
)
REPORTED_CHANGE_SHARE = 0.25  # a change by less than this part of what was told last is not told


class AdaptiveSemaphore:
    """The places of a kind, shared by the lanes of a process.

    Nothing here waits or locks while nobody is refused: a place is taken once for many items, and an item costs
    two additions and a comparison.
    """

    def __init__(self, kind: str, max_slots: int, now: float | None = None) -> None:
        self.kind = kind
        self.controller = ConcurrencyController.initial(max_slots)
        self.slots = max_slots
        self.start_gap_s = 0.0  # between the starts of two items; 0 while nothing is held back
        self.retry_spacing = 1.0  # how much longer than usual retries wait
        self.throttled_total = 0  # refusals so far
        self._code_error_batches = 0
        self._slots_in_use = 0
        self._waiters: deque[tuple[asyncio.Future[bool], object]] = deque()
        self._reported_slots = max_slots
        self._next_start_at = float("-inf")
        self._last_cut_at = float("-inf")
        self._open_window(time.monotonic() if now is None else now)

    @property
    def max_slots(self) -> int:
        return self.controller.max_level

    # The gate.

    @property
    def should_yield_slot(self) -> bool:
        """Whether a place should be given back after an item: there are fewer now, or others wait for their turn.

        That is asked only where starts are held apart: until then places are as many as they ever were.
        """
        return self._slots_in_use > self.slots or (self.start_gap_s > 0 and bool(self._waiters))

    async def acquire(self, owner: object) -> bool:
        """Take a place, or wait for one; False when the run was dismissed meanwhile."""
        if self._slots_in_use < self.slots and not self._waiters:
            self._slots_in_use += 1
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append((place, owner))
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.result():
                self.release()  # it was given to us in the same moment
            elif (place, owner) in self._waiters:
                self._waiters.remove((place, owner))
            raise

    def release(self) -> None:
        self._slots_in_use -= 1
        self._admit_waiters()

    def cancel_waiters(self, owner: object) -> None:
        """Those of a run that wait for a place need none any more."""
        for waiter in [waiter for waiter in self._waiters if waiter[1] is owner]:
            self._waiters.remove(waiter)
            if not waiter[0].done():
                waiter[0].set_result(False)

    def _admit_waiters(self) -> None:
        while self._waiters and self._slots_in_use < self.slots:
            place, _ = self._waiters.popleft()
            if not place.done():  # one that was cancelled is still in the line, and wants no place
                self._slots_in_use += 1
                place.set_result(True)

    # The handler's own code.

    def record_batch_error(self, error: BaseException | None) -> bool:
        """A whole batch came back: whether its handler is broken, so that no part of a batch would fare better."""
        self._code_error_batches = self._code_error_batches + 1 if isinstance(error, CODE_ERROR_TYPES) else 0
        return self._code_error_batches > MAX_CODE_ERROR_BATCHES

    # The controller.

    def record_outcome(self, outcome: Outcome, started: float, now: float) -> bool:
        """An item came back: whether it was refused.

        What was refused under an older, wider gate is no reason to make this one narrower.
        """
        refused = False
        if not isinstance(outcome, Retry):
            self._settled += 1
            self._settled_s += now - started
        elif outcome.throttled:
            refused = True
            self.throttled_total += 1
            self._throttled += started > self._last_cut_at
        else:
            self._failed += 1
        if refused or now >= self._window_ends_at:
            self._evaluate_window(started, now)
        return refused

    def reserve_start(self, now: float) -> float:
        """The seconds until the next item may start; whoever asks is the one to start it."""
        start = max(self._next_start_at, now - START_CREDIT_S)
        self._next_start_at = start + self.start_gap_s
        return start - now

    def slot_cooldown_s(self, after: float | None) -> float:
        """How long the place of a refused item is left empty; ``after`` is what the provider asked for."""
        return self.controller.slot_cooldown_s(after)

    def _open_window(self, now: float) -> None:
        self._window_opened_at = now
        self._window_ends_at = now + self.controller.window_length_s
        self._settled = self._throttled = self._failed = 0
        self._settled_s = 0.0

    def _current_window(self, now: float) -> ObservationWindow:
        return ObservationWindow(
            now - self._window_opened_at, self._settled, self._settled_s, self._throttled, self._failed
        )

    def _evaluate_window(self, started: float, now: float) -> None:
        """If the window says enough, do what follows from it, and open the next."""
        window = self._current_window(now)
        if (
            window.answers == 1 and started > self._window_ends_at
        ):  # there was nothing to do for a while: it begins here
            self._window_opened_at, self._window_ends_at = started, started + self.controller.window_length_s
            return
        if not self.controller.is_window_complete(window):
            return
        before, self.controller = self.controller, self.controller.observe(window)
        if self.controller.level < before.level:
            self._last_cut_at = now
        self.slots, self.start_gap_s = self.controller.slots, self.controller.start_gap_s
        self.retry_spacing = self.controller.error_rate.retry_spacing
        self._open_window(now)
        self._admit_waiters()
        self._report_slots()

    def _report_slots(self) -> None:
        was, now = self._reported_slots, self.slots
        if abs(now - was) > REPORTED_CHANGE_SHARE * was or (now != was and self.max_slots in (was, now)):
            self._reported_slots = now
            emit("concurrency.changed", kind=self.kind, was=was, now=now, reason=self.controller.reason)
