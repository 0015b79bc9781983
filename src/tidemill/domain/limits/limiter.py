"""A limiter as it is declared, and what follows from it for the bucket that keeps it."""

from dataclasses import asdict, dataclass
from typing import Any

MAX_RATE = 100_000.0
MAX_CONCURRENCY = 10_000
MAX_BURST = 1_000_000
LEAST_BURST = 2
BURST_S = 0.1  # of the rate: what may come at once if nobody says
SLACK_S = 0.1
LONGEST_SLACK_S = 0.5  # of slow ones, where a permit that comes too late is a long wait
TIGHT_SLACK = 0.05  # of the time between two permits, where nothing may come at once
LOWEST_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limiter:
    """So many starts a second, so many at once, so many at a time.

    A permit is used a little later than it was taken: a process has to be told of it, and its loop has to turn. Within
    ``slack_s`` of its moment it is good, then it is void. So that starts, and not only permits, keep to
    ``burst + rate x window`` in any window, what may come late is taken off the burst: the bucket is ``depth`` deep
    instead. Where nothing can be taken off, permits are a little further apart: ``pace`` is below the rate.
    """

    name: str
    rate: float | None = None  # a second
    burst: int = 1
    concurrency: int | None = None
    adaptive: bool = True
    lowest: float = LOWEST_SHARE  # of the rate: refusals do not bring it below

    @property
    def slack_s(self) -> float:
        if self.rate is None:
            return 0.0
        return max(min(LONGEST_SLACK_S, TIGHT_SLACK / self.rate), min(SLACK_S, (self.burst - 1) / 2 / self.rate))

    @property
    def depth(self) -> float:
        return 1.0 if self.rate is None else max(1.0, self.burst - self.rate * self.slack_s)

    @property
    def pace(self) -> float | None:
        """Permits a second."""
        if self.rate is None:
            return None
        missing = 1.0 - (self.burst - self.rate * self.slack_s)
        return self.rate / (1.0 + missing) if missing > 0 else self.rate

    @property
    def declared(self) -> dict[str, Any]:
        """As it is kept in the database, to see whether it was declared anew."""
        return {name: value for name, value in asdict(self).items() if name != "name"}


def usual_burst(rate: float) -> int:
    """What may come at once if nobody says: what comes in a tenth of a second, and two at least."""
    return max(LEAST_BURST, round(rate * BURST_S))
