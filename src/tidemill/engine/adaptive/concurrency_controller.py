"""Adapts how many items run at once to throttled answers and errors: AIMD that remembers its last limit."""

import math
from dataclasses import dataclass, field, replace
from typing import Literal

from tidemill.core.moving_average import clamp, update_moving_average

ERROR_COUNT_DECAY = 0.7  # of what was counted, from window to window
PRIOR_SUCCESSES = 20  # attempts that are taken to be fine beforehand: two failures are no spike
USUAL_SHARE_ALPHA = 0.05  # what is usual changes slowly
SPIKE_ERROR_SHARE = 0.2
SPIKE_RATIO = 2.0  # times what is usual
MAX_BACKOFF_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Failed attempts of the last few windows, against what is usual for the kind.

    A kind whose rows are bad to a third is not in trouble; one that failed never and now fails to a third is.
    So a spike is a rise, and what lasts becomes usual in about a quarter of a minute of windows.
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
        """What the backoff of retries is multiplied by: 1 while few fail, up to 4 when all do."""
        return 1 + (MAX_BACKOFF_FACTOR - 1) * clamp((self.share - SPIKE_ERROR_SHARE) / (1 - SPIKE_ERROR_SHARE), 0, 1)


MIN_WINDOW_S = 1.0  # rate limits are counted by the second, or longer
MAX_WINDOW_S = 30.0
MIN_WINDOW_ANSWERS = 10  # answers that make a window; fewer after so many times its length
SPARSE_WINDOW_FACTOR = 5
THROTTLE_STORM_WINDOW_S = 0.1  # a storm of refusals is over sooner
MAX_START_GAP_S = 10.0
MAX_SLOT_COOLDOWN_S = 10.0
DEFAULT_ROUND_TRIP_S = 1.0
STRONGEST_CUT_FACTOR, WEAKEST_CUT_FACTOR = 0.25, 0.9  # cuts of one window
CALM_LEVEL_FACTOR = 0.95  # of a level that was fine
THROTTLE_CUT_GAIN = 3.0  # how much more is cut than the share that was refused
ERROR_SPIKE_CUT_FACTOR = 0.7
RECOVERY_WINDOWS = 8  # windows from a cut back to where it was refused
STEP_GROWTH_FACTOR = 1.5  # the step grows by this beyond it
MAX_STEP_SHARE = 0.2  # of the level, in one window

ChangeReason = Literal["", "throttled", "errors", "calm"]


@dataclass(frozen=True, slots=True)
class ObservationWindow:
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
    def average_in_flight(self) -> float:
        """How many items that got through were in hand at a time, on average (Little's law)."""
        return self.settled_s / max(self.seconds, 1e-6)


@dataclass(frozen=True, slots=True)
class ConcurrencyController:
    """How many items of a kind one process has in hand.

    ``level`` is a real number. Below its highest, items are not only fewer at a time, they also start at even gaps of
    a round trip divided by the level: a provider that refuses bursts is not given any, 4.5 is something other than 4
    and 5, and 0.1 is one item at a time with pauses. So one that takes less than one of us all the time is met too.

    A window with a refusal cuts the level, by a tenth at least and three quarters at most. Every other window adds a
    step: an eighth of the way back to the ``ceiling``, where it was refused. Nobody refuses there any more? Then the
    steps grow, so that a provider that got faster is used within seconds.
    """

    max_level: int
    level: float
    ceiling: float
    step: float = 0.0
    last_calm_level: float = 0.0  # the level of the last window without a refusal
    round_trip_s: float | None = None  # how long an item takes that gets through
    error_rate: ErrorRate = field(default_factory=ErrorRate)
    reason: ChangeReason = ""  # of the last change

    @classmethod
    def initial(cls, high: int) -> "ConcurrencyController":
        return cls(high, high, high)

    def adjust_to_window(self, window: ObservationWindow) -> "ConcurrencyController":
        tried = window.answers
        errors = self.error_rate.with_attempts(failed=window.failed, attempts=tried)
        trip_s = (
            update_moving_average(self.round_trip_s, window.settled_s / window.settled)
            if window.settled
            else self.round_trip_s
        )
        after = replace(self, error_rate=errors, round_trip_s=trip_s, reason="")
        if window.throttled:
            return after.cut_to_level(self._sustainable_level(window), "throttled")
        if errors.is_spike:
            return after.cut_to_level(max(ERROR_SPIKE_CUT_FACTOR * self.level, min(1.0, self.level)), "errors")
        return after.step_up() if window.settled else after

    def _sustainable_level(self, window: ObservationWindow) -> float:
        """Where no refusals are to be expected.

        A step too far is taken back, to a little below where all was well. A refusal out of the blue, or a second
        one in a row, means that things have changed: then what got through says what is bearable.
        """
        if self.reason == "calm":
            return min(WEAKEST_CUT_FACTOR * self.level, CALM_LEVEL_FACTOR * self.last_calm_level)
        through = max(
            window.average_in_flight, self.level * (1 - THROTTLE_CUT_GAIN * window.throttled / window.answers)
        )
        return clamp(through, STRONGEST_CUT_FACTOR * self.level, WEAKEST_CUT_FACTOR * self.level)

    def cut_to_level(self, level: float, reason: ChangeReason) -> "ConcurrencyController":
        """Down to ``level``, and remember where that was necessary."""
        level = clamp(level, self.min_level, self.max_level)
        return replace(
            self, level=level, ceiling=self.level, step=max(0.0, self.level - level) / RECOVERY_WINDOWS, reason=reason
        )

    def step_up(self) -> "ConcurrencyController":
        """One step up: nobody complained."""
        if self.level >= self.max_level:
            return self
        step = max(self.step, self.level * (1 - WEAKEST_CUT_FACTOR) / RECOVERY_WINDOWS)
        level = clamp(self.level + step, self.min_level, self.max_level)
        if level > self.ceiling:
            step = min(step * STEP_GROWTH_FACTOR, MAX_STEP_SHARE * level)
        return replace(self, level=level, step=step, last_calm_level=self.level, reason="calm")

    @property
    def min_level(self) -> float:
        """Where the gap is the longest there is."""
        return min(1.0, self._effective_round_trip_s / MAX_START_GAP_S)

    @property
    def slots(self) -> int:
        """Items in hand at a time, 1 … high."""
        return max(1, math.ceil(self.level))

    @property
    def start_gap_s(self) -> float:
        """The time between the starts of two items; 0 while nothing is held back."""
        return 0.0 if self.level >= self.max_level else min(self._effective_round_trip_s / self.level, MAX_START_GAP_S)

    @property
    def window_length_s(self) -> float:
        """The time between two looks: a round trip at least, so that a cut shows before the next."""
        return clamp(self._effective_round_trip_s, MIN_WINDOW_S, MAX_WINDOW_S)

    def is_window_complete(self, window: ObservationWindow) -> bool:
        """Whether a window says enough: one refusal of two is not half of everything, forty of fifty are."""
        if window.throttled >= MIN_WINDOW_ANSWERS and window.throttled > window.settled:
            return window.seconds >= max(THROTTLE_STORM_WINDOW_S, self._effective_round_trip_s)
        return window.seconds >= self.window_length_s * (
            1 if window.answers >= MIN_WINDOW_ANSWERS else SPARSE_WINDOW_FACTOR
        )

    def slot_cooldown_s(self, after: float | None) -> float:
        """How long the place of a refused item takes no other: ``after`` seconds if the provider said so, in bounds.

        Where starts are held apart already, nothing more is needed. Before that, places that are refused at once
        would run through one item after another, as fast as they can.
        """
        if after is None:
            return min(self.window_length_s, MAX_SLOT_COOLDOWN_S) if self.level >= self.max_level else 0.0
        return clamp(after, min(self._effective_round_trip_s, MAX_SLOT_COOLDOWN_S), MAX_SLOT_COOLDOWN_S)

    @property
    def _effective_round_trip_s(self) -> float:
        return max(DEFAULT_ROUND_TRIP_S if self.round_trip_s is None else self.round_trip_s, 1e-4)
