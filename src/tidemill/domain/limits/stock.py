"""The permits that a process has in hand, each with the moments between which it is good."""

from collections import deque
from dataclasses import dataclass

DRIFT = 50e-6  # seconds a second by which two clocks may go apart
MARGIN = 0.8  # of the slack: the rest is for the time between a last look at the clock and the call itself


@dataclass(frozen=True, slots=True)
class ClockFit:
    """What the database's clock shows when ours shows nothing: between ``low`` and ``high``.

    Each answer says that the database's clock was read between the question and the answer. Together they say more.
    """

    low: float
    high: float
    at: float

    @classmethod
    def of(cls, asked: float, answered: float, clock: float) -> "ClockFit":
        return cls(clock - answered, clock - asked, answered)

    def narrowed(self, newer: "ClockFit") -> "ClockFit":
        """Both are true; if they cannot be, somebody set a clock, and the newer one is."""
        drift = DRIFT * (newer.at - self.at)
        low, high = max(self.low - drift, newer.low), min(self.high + drift, newer.high)
        return ClockFit(low, high, newer.at) if low <= high else newer

    def bounds(self, most: float) -> tuple[float, float]:
        """Low and high, not further apart than so: beyond that the network decides how exact we are."""
        middle, half = (self.low + self.high) / 2, min(self.high - self.low, most) / 2
        return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class Moment:
    """When a permit is good, by our own clock; ``start`` is what the database calls it."""

    begins: float
    ends: float
    start: float


class Stock:
    """Permits in the order of their moments."""

    def __init__(self) -> None:
        self._moments: deque[Moment] = deque()

    def __len__(self) -> int:
        return len(self._moments)

    def add(self, starts: list[float], fit: ClockFit, slack: float) -> None:
        low, high = fit.bounds(slack / 2)
        new = [Moment(start - low, start - high + slack * MARGIN, start) for start in starts]
        if new and self._moments and new[0].start < self._moments[-1].start:  # somebody gave some back
            self._moments = deque(sorted([*self._moments, *new], key=lambda moment: moment.start))
        else:
            self._moments.extend(new)

    def drop_void(self, now: float) -> int:
        """Those that nobody used in time are no good any more; how many there were."""
        moments, dropped = self._moments, 0
        while moments and moments[0].ends < now:
            moments.popleft()
            dropped += 1
        return dropped

    def use(self, now: float) -> Moment | None:
        """A permit that is good now, if there is one."""
        moments = self._moments
        while moments:
            if moments[0].begins > now:
                return None
            moment = moments.popleft()
            if moment.ends >= now:
                return moment
        return None

    @property
    def begins_at(self) -> float | None:
        """When the next one is good."""
        return self._moments[0].begins if self._moments else None

    def empty(self) -> list[float]:
        """None is wanted any more: what they are called, to be given back."""
        starts = [moment.start for moment in self._moments]
        self._moments.clear()
        return starts
