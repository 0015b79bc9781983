"""A model of a limiter: the arithmetic of ``tidemill.take_permits`` without a database."""

from dataclasses import dataclass, field

from tidemill.limits.limiter import Limiter


@dataclass
class Bucket:
    """Return the level of the bucket at a time; if it is negative, permits start later."""

    limiter: Limiter
    level: float
    at: float = 0.0
    spare: list[float] = field(default_factory=list)

    def take(self, clock: float, wanted: int, *, lead: float, reach: float) -> list[float]:
        """Return the start times of the permits that are granted now."""
        slack, pace = self.limiter.permit_validity_s, self.limiter.permits_per_s or 0.0
        good = sorted(start for start in self.spare if start > clock + lead - slack / 2)
        late = [start for start in self.spare if clock - slack < start <= clock + lead - slack / 2]
        reused, self.spare = good[:wanted], late + good[wanted:]
        base = max(self.at, clock + lead)
        self.level = min(self.limiter.bucket_depth, self.level + (base - self.at) * pace)
        self.at = base
        n = min(wanted - len(reused), max(0, int((self.level + (clock + lead + reach - base) * pace) // 1)))
        starts = [base + max(0.0, (i - self.level) / pace) for i in range(1, n + 1)]
        self.level -= n
        return reused + starts


def most_above(starts: list[float], rate: float, burst: float) -> float:
    """Return by how many starts the worst window exceeds ``burst + rate x window``; at most 0 if none does."""
    # From start i to start j there are j - i + 1; the worst i for each j is the one with the least i - rate * t.
    worst, lowest = float("-inf"), float("inf")
    for place, moment in enumerate(starts):
        lowest = min(lowest, place - rate * moment)
        worst = max(worst, place + 1 - rate * moment - lowest - burst)
    return worst
