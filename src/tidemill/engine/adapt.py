"""Controllers: pure steps from an observation to a size. Settings are their bounds."""

from dataclasses import dataclass, replace

ALPHA = 0.3  # of the newest observation in a moving average
FLUSH_SPACING_S = 0.5  # fast handlers flush about twice a second, not every hundred items
GROWTH = 2


def clamp(value: float, low: float, high: float) -> float:
    return max(low, min(value, high))


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an item of a kind takes in one process, with all its concurrency: wall time per item."""

    item_ms: float | None = None

    def observe(self, *, items: int, seconds: float) -> "Pace":
        if not items:
            return self
        newest = seconds * 1000 / items
        return Pace(newest if self.item_ms is None else (1 - ALPHA) * self.item_ms + ALPHA * newest)

    def claim_size(self, *, slice_ms: float, safety: float, first: int, low: int, high: int) -> int:
        """Items for about one slice of work; ``first`` while nothing is known."""
        wanted = first if self.item_ms is None else slice_ms / max(self.item_ms, 0.001) * safety
        return int(clamp(wanted, low, high))

    def lease_seconds(self, *, items: int, floor: float, cap: float) -> float:
        """Twice the time the batch should take."""
        expected = 0.0 if self.item_ms is None else items * self.item_ms / 1000
        return clamp(2 * expected, floor, cap)

    def flush_size(self, *, low: int, high: int) -> int:
        """Outcomes per flush: ``low``, or as many as come in half a second when they come faster."""
        wanted = low if self.item_ms is None else FLUSH_SPACING_S * 1000 / max(self.item_ms, 0.001)
        return int(clamp(wanted, low, high))


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Rows per ingest chunk: doubled while the database is quick, halved when it is slow."""

    rows: int
    low: int
    high: int
    good_ms: float
    bad_ms: float
    average_ms: float | None = None

    @classmethod
    def start(cls, *, low: int, high: int, good_ms: float, bad_ms: float) -> "ChunkSize":
        return cls(low, low, high, good_ms, bad_ms)

    def observe(self, ms: float) -> "ChunkSize":
        average = ms if self.average_ms is None else (1 - ALPHA) * self.average_ms + ALPHA * ms
        rows = self.rows
        if ms > self.bad_ms:
            rows //= GROWTH
        elif average < self.good_ms:
            rows *= GROWTH
        return replace(self, rows=int(clamp(rows, self.low, self.high)), average_ms=average)
