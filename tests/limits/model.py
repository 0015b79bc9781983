"""A limiter as arithmetic: what ``tidemill.take_permits`` does, without a database."""

from dataclasses import dataclass, field

from tidemill.limits.limiter import Limiter


@dataclass
class Bucket:
    """Its level at a moment; below nothing, permits are given that begin later."""

    limiter: Limiter
    level: float
    at: float = 0.0
    spare: list[float] = field(default_factory=list)

    def take(self, clock: float, wanted: int, *, lead: float, reach: float) -> list[float]:
        """When each of the permits begins that are given now."""
        slack, pace = self.limiter.slack_s, self.limiter.permits_per_s or 0.0
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
    """By how many starts the worst window of all is above ``burst + rate x window``; 0 or less is none."""
    # From start i to start j there are j - i + 1; the worst i for each j is the one with the least i - rate * t.
    worst, lowest = float("-inf"), float("inf")
    for place, moment in enumerate(starts):
        lowest = min(lowest, place - rate * moment)
        worst = max(worst, place + 1 - rate * moment - lowest - burst)
    return worst
