"""How many items of a kind one process has in hand: a gate whose width follows a controller."""

import asyncio
import time
from collections import deque

from tidemill.domain.outcome import Outcome, Retry
from tidemill.engine.adapt.concurrency import Concurrency, Window
from tidemill.telemetry.events import emit

CREDIT_S = 0.005  # a start that comes late may be made good: timers are not exact
CODE_ERRORS = (NameError, ImportError, SyntaxError, NotImplementedError)  # they tell of code, and hardly of an item
BROKEN = 64  # batches in a row that fail so: with one item in a hundred to blame, some would have succeeded
TELLING = 0.25  # a change by less than this part of what was told last is not told


class Crew:
    """The places of a kind, shared by the lanes of a process.

    Nothing here waits or locks while nobody is refused: a place is taken once for many items, and an item costs
    two additions and a comparison.
    """

    def __init__(self, kind: str, high: int, now: float | None = None) -> None:
        self.kind = kind
        self.control = Concurrency.start(high)
        self.places = high
        self.gap_s = 0.0  # between the starts of two items; 0 while nothing is held back
        self.spacing = 1.0  # how much longer than usual retries wait
        self.throttled = 0  # refusals so far
        self._broken = 0
        self._busy = 0
        self._waiting: deque[tuple[asyncio.Future[bool], object]] = deque()
        self._told = high
        self._next_at = float("-inf")
        self._cut_at = float("-inf")
        self._open_window(time.monotonic() if now is None else now)

    @property
    def high(self) -> int:
        return self.control.high

    # The gate.

    @property
    def crowded(self) -> bool:
        """Whether a place should be given back after an item: there are fewer now, or others wait for their turn.

        That is asked only where starts are held apart: until then places are as many as they ever were.
        """
        return self._busy > self.places or (self.gap_s > 0 and bool(self._waiting))

    async def enter(self, run: object) -> bool:
        """Take a place, or wait for one; False when the run was dismissed meanwhile."""
        if self._busy < self.places and not self._waiting:
            self._busy += 1
            return True
        place: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((place, run))
        try:
            return await place
        except asyncio.CancelledError:
            if not place.cancelled() and place.result():
                self.leave()  # it was given to us in the same moment
            elif (place, run) in self._waiting:
                self._waiting.remove((place, run))
            raise

    def leave(self) -> None:
        self._busy -= 1
        self._admit()

    def dismiss(self, run: object) -> None:
        """Those of a run that wait for a place need none any more."""
        for waiter in [waiter for waiter in self._waiting if waiter[1] is run]:
            self._waiting.remove(waiter)
            if not waiter[0].done():
                waiter[0].set_result(False)

    def _admit(self) -> None:
        while self._waiting and self._busy < self.places:
            place, _ = self._waiting.popleft()
            if not place.done():  # one that was cancelled is still in the line, and wants no place
                self._busy += 1
                place.set_result(True)

    # The handler's own code.

    def note_whole(self, error: BaseException | None) -> bool:
        """A whole batch came back: whether its handler is broken, so that no part of a batch would fare better."""
        self._broken = self._broken + 1 if isinstance(error, CODE_ERRORS) else 0
        return self._broken > BROKEN

    # The controller.

    def note(self, outcome: Outcome, started: float, now: float) -> bool:
        """An item came back: whether it was refused.

        What was refused under an older, wider gate is no reason to make this one narrower.
        """
        refused = False
        if not isinstance(outcome, Retry):
            self._settled += 1
            self._settled_s += now - started
        elif outcome.throttled:
            refused = True
            self.throttled += 1
            self._throttled += started > self._cut_at
        else:
            self._failed += 1
        if refused or now >= self._turn_at:
            self._look(started, now)
        return refused

    def book(self, now: float) -> float:
        """The seconds until the next item may start; whoever asks is the one to start it."""
        start = max(self._next_at, now - CREDIT_S)
        self._next_at = start + self.gap_s
        return start - now

    def rest_s(self, after: float | None) -> float:
        """How long the place of a refused item is left empty; ``after`` is what the provider asked for."""
        return self.control.rest_s(after)

    def _open_window(self, now: float) -> None:
        self._opened_at = now
        self._turn_at = now + self.control.window_s
        self._settled = self._throttled = self._failed = 0
        self._settled_s = 0.0

    def _window(self, now: float) -> Window:
        return Window(now - self._opened_at, self._settled, self._settled_s, self._throttled, self._failed)

    def _look(self, started: float, now: float) -> None:
        """If the window says enough, do what follows from it, and open the next."""
        window = self._window(now)
        if window.answers == 1 and started > self._turn_at:  # there was nothing to do for a while: it begins here
            self._opened_at, self._turn_at = started, started + self.control.window_s
            return
        if not self.control.is_over(window):
            return
        before, self.control = self.control, self.control.observe(window)
        if self.control.level < before.level:
            self._cut_at = now
        self.places, self.gap_s = self.control.places, self.control.gap_s
        self.spacing = self.control.errors.spacing
        self._open_window(now)
        self._admit()
        self._tell()

    def _tell(self) -> None:
        was, now = self._told, self.places
        if abs(now - was) > TELLING * was or (now != was and self.high in (was, now)):
            self._told = now
            emit("concurrency.changed", kind=self.kind, was=was, now=now, reason=self.control.reason)
