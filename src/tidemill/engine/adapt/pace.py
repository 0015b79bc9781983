"""How long items take, and the sizes that follow from it."""

from dataclasses import dataclass

from tidemill.domain.measure import clamp, moving

FLUSH_SPACING_S = 0.5  # fast handlers flush about twice a second, not every hundred items
QUICKEST_MS = 0.001


@dataclass(frozen=True, slots=True)
class Pace:
    """How long an item of a kind takes in one process, with all its concurrency: wall time per item."""

    item_ms: float | None = None

    def observe(self, *, items: int, seconds: float) -> "Pace":
        return Pace(moving(self.item_ms, seconds * 1000 / items)) if items else self

    def claim_size(self, *, slice_ms: float, safety: float, first: int, low: int, high: int) -> int:
        """Items for about one slice of work; ``first`` while nothing is known."""
        wanted = first if self.item_ms is None else slice_ms / max(self.item_ms, QUICKEST_MS) * safety
        return int(clamp(wanted, low, high))

    def lease_seconds(self, *, items: int, floor: float, cap: float) -> float:
        """Twice the time the batch should take."""
        expected = 0.0 if self.item_ms is None else items * self.item_ms / 1000
        return clamp(2 * expected, floor, cap)

    def flush_size(self, *, low: int, high: int) -> int:
        """Outcomes per flush: ``low``, or as many as come in half a second when they come faster."""
        wanted = low if self.item_ms is None else FLUSH_SPACING_S * 1000 / max(self.item_ms, QUICKEST_MS)
        return int(clamp(wanted, low, high))
