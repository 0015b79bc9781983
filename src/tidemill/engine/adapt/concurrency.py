"""Items at a time, when whoever they call refuses some, or when errors rise: AIMD with a memory."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from tidemill.domain.measure import clamp, moving
from tidemill.engine.adapt.errors import ErrorRate

WINDOW_S = 1.0  # rate limits are counted by the second, or longer
LONGEST_WINDOW_S = 30.0
ENOUGH = 10  # answers that make a window; fewer after so many times its length
PATIENCE = 5
QUICK_S = 0.1  # a storm of refusals is over sooner
LONGEST_GAP_S = 10.0
LONGEST_REST_S = 10.0
UNKNOWN_TRIP_S = 1.0
HARDEST, GENTLEST = 0.25, 0.9  # cuts of one window
PROVEN = 0.95  # of a level that was fine
SHARPNESS = 3.0  # how much more is cut than the share that was refused
SPIKE_CUT = 0.7
CLIMB = 8  # windows from a cut back to where it was refused
FASTER = 1.5  # the step grows by this beyond it
BOLDEST = 0.2  # of the level, in one window

Reason = Literal["", "throttled", "errors", "calm"]


@dataclass(frozen=True, slots=True)
class Window:
    """What came back in a stretch of time: ``settled`` took ``settled_s`` together."""

    seconds: float
    settled: int = 0
    settled_s: float = 0.0
    throttled: int = 0
    failed: int = 0

    @property
    def answers(self) -> int:
        return self.settled + self.throttled + self.failed

    @property
    def through(self) -> float:
        """How many items that got through were in hand at a time, on average (Little's law)."""
        return self.settled_s / max(self.seconds, 1e-6)


@dataclass(frozen=True, slots=True)
class Concurrency:
    """How many items of a kind one process has in hand.

    ``level`` is a real number. Below its highest, items are not only fewer at a time, they also start at even gaps of
    a round trip divided by the level: a provider that refuses bursts is not given any, 4.5 is something other than 4
    and 5, and 0.1 is one item at a time with pauses. So one that takes less than one of us all the time is met too.

    A window with a refusal cuts the level, by a tenth at least and three quarters at most. Every other window adds a
    step: an eighth of the way back to the ``ceiling``, where it was refused. Nobody refuses there any more? Then the
    steps grow, so that a provider that got faster is used within seconds.
    """

    high: int
    level: float
    ceiling: float
    step: float = 0.0
    fine: float = 0.0  # the level of the last window without a refusal
    trip_s: float | None = None  # how long an item takes that gets through
    errors: ErrorRate = field(default_factory=ErrorRate)
    reason: Reason = ""  # of the last change

    @classmethod
    def start(cls, high: int) -> "Concurrency":
        return cls(high, high, high)

    def observe(self, window: Window) -> "Concurrency":
        tried = window.answers
        errors = self.errors.observe(failed=window.failed, tried=tried)
        trip_s = moving(self.trip_s, window.settled_s / window.settled) if window.settled else self.trip_s
        after = replace(self, errors=errors, trip_s=trip_s, reason="")
        if window.throttled:
            return after.cut(self._bearable(window), "throttled")
        if errors.is_spike:
            return after.cut(max(SPIKE_CUT * self.level, min(1.0, self.level)), "errors")
        return after.climb() if window.settled else after

    def _bearable(self, window: Window) -> float:
        """Where no refusals are to be expected.

        A step too far is taken back, to a little below where all was well. A refusal out of the blue, or a second
        one in a row, means that things have changed: then what got through says what is bearable.
        """
        if self.reason == "calm":
            return min(GENTLEST * self.level, PROVEN * self.fine)
        through = max(window.through, self.level * (1 - SHARPNESS * window.throttled / window.answers))
        return clamp(through, HARDEST * self.level, GENTLEST * self.level)

    def cut(self, level: float, reason: Reason) -> "Concurrency":
        """Down to ``level``, and remember where that was necessary."""
        level = clamp(level, self.low, self.high)
        return replace(self, level=level, ceiling=self.level, step=max(0.0, self.level - level) / CLIMB, reason=reason)

    def climb(self) -> "Concurrency":
        """One step up: nobody complained."""
        if self.level >= self.high:
            return self
        step = max(self.step, self.level * (1 - GENTLEST) / CLIMB)
        level = clamp(self.level + step, self.low, self.high)
        if level > self.ceiling:
            step = min(step * FASTER, BOLDEST * level)
        return replace(self, level=level, step=step, fine=self.level, reason="calm")

    @property
    def low(self) -> float:
        """Where the gap is the longest there is."""
        return min(1.0, self._trip_s / LONGEST_GAP_S)

    @property
    def places(self) -> int:
        """Items in hand at a time, 1 … high."""
        return max(1, math.ceil(self.level))

    @property
    def gap_s(self) -> float:
        """The time between the starts of two items; 0 while nothing is held back."""
        return 0.0 if self.level >= self.high else min(self._trip_s / self.level, LONGEST_GAP_S)

    @property
    def window_s(self) -> float:
        """The time between two looks: a round trip at least, so that a cut shows before the next."""
        return clamp(self._trip_s, WINDOW_S, LONGEST_WINDOW_S)

    def is_over(self, window: Window) -> bool:
        """Whether a window says enough: one refusal of two is not half of everything, forty of fifty are."""
        if window.throttled >= ENOUGH and window.throttled > window.settled:
            return window.seconds >= max(QUICK_S, self._trip_s)
        return window.seconds >= self.window_s * (1 if window.answers >= ENOUGH else PATIENCE)

    def rest_s(self, after: float | None) -> float:
        """How long the place of a refused item takes no other: ``after`` seconds if the provider said so, in bounds.

        Where starts are held apart already, nothing more is needed. Before that, places that are refused at once
        would run through one item after another, as fast as they can.
        """
        if after is None:
            return min(self.window_s, LONGEST_REST_S) if self.level >= self.high else 0.0
        return clamp(after, min(self._trip_s, LONGEST_REST_S), LONGEST_REST_S)

    @property
    def _trip_s(self) -> float:
        return max(UNKNOWN_TRIP_S if self.trip_s is None else self.trip_s, 1e-4)
