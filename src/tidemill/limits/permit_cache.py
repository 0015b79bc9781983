"""The permits that a process has in hand, each with the moments between which it is good."""

from collections import deque
from dataclasses import dataclass

CLOCK_DRIFT_S_PER_S = 50e-6  # seconds a second by which two clocks may go apart
PERMIT_SLACK_USABLE_SHARE = (
    0.8  # of the slack: the rest is for the time between a last look at the clock and the call itself
)


@dataclass(frozen=True, slots=True)
class ClockOffsetBounds:
    """What the database's clock shows when ours shows nothing: between ``low`` and ``high``.

    Each answer says that the database's clock was read between the question and the answer. Together they say more.
    """

    low: float
    high: float
    at: float

    @classmethod
    def from_round_trip(cls, sent_at: float, received_at: float, database_clock: float) -> "ClockOffsetBounds":
        return cls(database_clock - received_at, database_clock - sent_at, received_at)

    def narrow(self, newer: "ClockOffsetBounds") -> "ClockOffsetBounds":
        """Both are true; if they cannot be, somebody set a clock, and the newer one is."""
        drift = CLOCK_DRIFT_S_PER_S * (newer.at - self.at)
        low, high = max(self.low - drift, newer.low), min(self.high + drift, newer.high)
        return ClockOffsetBounds(low, high, newer.at) if low <= high else newer

    def clamp_bounds(self, max_width: float) -> tuple[float, float]:
        """Low and high, not further apart than so: beyond that the network decides how exact we are."""
        middle, half = (self.low + self.high) / 2, min(self.high - self.low, max_width) / 2
        return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class PermitWindow:
    """When a permit is good, by our own clock; ``start`` is what the database calls it."""

    valid_from: float
    valid_until: float
    database_start: float


class PermitCache:
    """Permits in the order of their moments."""

    def __init__(self) -> None:
        self._moments: deque[PermitWindow] = deque()

    def __len__(self) -> int:
        return len(self._moments)

    def add_permits(self, starts: list[float], fit: ClockOffsetBounds, slack: float) -> None:
        low, high = fit.clamp_bounds(slack / 2)
        new = [PermitWindow(start - low, start - high + slack * PERMIT_SLACK_USABLE_SHARE, start) for start in starts]
        if (
            new and self._moments and new[0].database_start < self._moments[-1].database_start
        ):  # somebody gave some back
            self._moments = deque(sorted([*self._moments, *new], key=lambda moment: moment.database_start))
        else:
            self._moments.extend(new)

    def drop_expired(self, now: float) -> int:
        """Those that nobody used in time are no good any more; how many there were."""
        moments, dropped = self._moments, 0
        while moments and moments[0].valid_until < now:
            moments.popleft()
            dropped += 1
        return dropped

    def take_valid_permit(self, now: float) -> PermitWindow | None:
        """A permit that is good now, if there is one."""
        moments = self._moments
        while moments:
            if moments[0].valid_from > now:
                return None
            moment = moments.popleft()
            if moment.valid_until >= now:
                return moment
        return None

    @property
    def next_valid_from(self) -> float | None:
        """When the next one is good."""
        return self._moments[0].valid_from if self._moments else None

    def drain(self) -> list[float]:
        """None is wanted any more: what they are called, to be given back."""
        starts = [moment.database_start for moment in self._moments]
        self._moments.clear()
        return starts
