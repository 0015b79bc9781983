"""The unused permits of a process, each with the period in which it is valid."""

from collections import deque
from dataclasses import dataclass

CLOCK_DRIFT_S_PER_S = 50e-6  # seconds per second by which two clocks may drift apart
PERMIT_SLACK_USABLE_SHARE = 0.8  # the rest of the slack is for the time between the last clock reading and the call


@dataclass(frozen=True, slots=True)
class ClockOffsetBounds:
    """The offset of the database's clock from the local clock: between ``low`` and ``high``.

    The database reads its clock between the request and the response, so each round trip bounds the offset. The
    intersection of several bounds is narrower.
    """

    low: float
    high: float
    at: float

    @classmethod
    def from_round_trip(cls, sent_at: float, received_at: float, database_clock: float) -> "ClockOffsetBounds":
        return cls(database_clock - received_at, database_clock - sent_at, received_at)

    def narrow(self, newer: "ClockOffsetBounds") -> "ClockOffsetBounds":
        """Return the intersection of both bounds; only the newer if they do not overlap, because a clock was set."""
        drift = CLOCK_DRIFT_S_PER_S * (newer.at - self.at)
        low, high = max(self.low - drift, newer.low), min(self.high + drift, newer.high)
        return ClockOffsetBounds(low, high, newer.at) if low <= high else newer

    def clamp_bounds_to_width(self, max_width: float) -> tuple[float, float]:
        """Return low and high, at most ``max_width`` apart, so that a slow network cannot make permits unusable."""
        middle, half = (self.low + self.high) / 2, min(self.high - self.low, max_width) / 2
        return middle - half, middle + half


@dataclass(frozen=True, slots=True)
class PermitWindow:
    """When a permit is valid, on the local clock; ``database_start`` identifies it in the database."""

    valid_from: float
    valid_until: float
    database_start: float


class PermitCache:
    """Permits in the order of their start times."""

    def __init__(self) -> None:
        self._moments: deque[PermitWindow] = deque()

    def __len__(self) -> int:
        return len(self._moments)

    def add_permits(self, starts: list[float], fit: ClockOffsetBounds, slack: float) -> None:
        low, high = fit.clamp_bounds_to_width(slack / 2)
        new = [PermitWindow(start - low, start - high + slack * PERMIT_SLACK_USABLE_SHARE, start) for start in starts]
        # Permits that another process returned may be earlier than the ones in the cache.
        if new and self._moments and new[0].database_start < self._moments[-1].database_start:
            self._moments = deque(sorted([*self._moments, *new], key=lambda moment: moment.database_start))
        else:
            self._moments.extend(new)

    def drop_expired(self, now: float) -> int:
        """Drop expired permits; return their number."""
        moments, dropped = self._moments, 0
        while moments and moments[0].valid_until < now:
            moments.popleft()
            dropped += 1
        return dropped

    def take_valid_permit(self, now: float) -> PermitWindow | None:
        """Remove and return a permit that is valid now, or None."""
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
        """When the next permit becomes valid."""
        return self._moments[0].valid_from if self._moments else None

    def drain(self) -> list[float]:
        """Remove all permits; return their start times on the database's clock."""
        starts = [moment.database_start for moment in self._moments]
        self._moments.clear()
        return starts
