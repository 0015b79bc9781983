"""How long items take, and the sizes that follow from it.

How many rows of a source are written at once.
"""

from dataclasses import dataclass, replace

from tidemill.core.stats import clamp, update_moving_average

FLUSH_SPACING_S = 0.5  # fast handlers flush about twice a second, not every hundred items
MIN_ITEM_MS = 0.001


@dataclass(frozen=True, slots=True)
class ItemPace:
    """How long an item of a kind takes in one process, with all its concurrency: wall time per item."""

    item_ms: float | None = None

    def observe(self, *, items: int, seconds: float) -> "ItemPace":
        return ItemPace(update_moving_average(self.item_ms, seconds * 1000 / items)) if items else self

    def claim_size(self, *, slice_ms: float, safety: float, first: int, low: int, high: int) -> int:
        """Items for about one slice of work; ``first`` while nothing is known."""
        wanted = first if self.item_ms is None else slice_ms / max(self.item_ms, MIN_ITEM_MS) * safety
        return int(clamp(wanted, low, high))

    def lease_seconds(self, *, items: int, floor: float, cap: float) -> float:
        """Twice the time the batch should take."""
        expected = 0.0 if self.item_ms is None else items * self.item_ms / 1000
        return clamp(2 * expected, floor, cap)

    def flush_size(self, *, low: int, high: int) -> int:
        """Outcomes per flush: ``low``, or as many as come in half a second when they come faster."""
        wanted = low if self.item_ms is None else FLUSH_SPACING_S * 1000 / max(self.item_ms, MIN_ITEM_MS)
        return int(clamp(wanted, low, high))


CHUNK_GROWTH_FACTOR = 2
FAILED_CHUNK_DIVISOR = 4  # a chunk that failed is followed by one of a quarter
MAX_COUNTED_CHUNK_FAILURES = 8  # that count: a quarter of a quarter … is the smallest chunk long before
CHUNK_BACKOFF_S = 0.1
MAX_CHUNK_BACKOFF_S = 5.0


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Rows per ingest chunk: doubled while the database is quick, halved when it is slow, quartered when it fails."""

    rows: int
    min_rows: int
    max_rows: int
    good_ms: float
    bad_ms: float
    average_ms: float | None = None
    failures: int = 0  # in a row
    reason: str = ""  # why it shrank, if it did

    @classmethod
    def initial(cls, *, min_rows: int, max_rows: int, good_ms: float, bad_ms: float) -> "ChunkSize":
        return cls(min_rows, min_rows, max_rows, good_ms, bad_ms)

    def observe(
        self, ms: float, *, rows: int | None = None, failed: int = 0, waited_ms: float = 0.0, full: bool = True
    ) -> "ChunkSize":
        """A chunk of so many rows was written in ``ms``, after so many tries that failed.

        ``waited_ms``: somebody had to wait for a connection meanwhile, and a smaller chunk gives it back sooner.
        A chunk that is not ``full`` was bounded by its bytes: no reason to try more rows.
        """
        average = update_moving_average(self.average_ms, ms)
        after = replace(self, average_ms=average, failures=0, reason="")
        if failed:
            return after.record_failures(failed, rows=rows)
        if waited_ms > 0:
            return after.shrink(rows, CHUNK_GROWTH_FACTOR, "pool")
        if ms > self.bad_ms:
            return after.shrink(rows, CHUNK_GROWTH_FACTOR, "slow")
        # Twice the rows may take twice the time: where the two targets are close, that must not be too slow at once.
        if full and average < self.good_ms and CHUNK_GROWTH_FACTOR * average <= self.bad_ms:
            return replace(after, rows=int(clamp(self.rows * CHUNK_GROWTH_FACTOR, self.min_rows, self.max_rows)))
        return after

    def record_failures(self, times: int = 1, *, rows: int | None = None) -> "ChunkSize":
        """So many tries at writing a chunk failed."""
        times = min(times, MAX_COUNTED_CHUNK_FAILURES)
        failures = min(self.failures + times, MAX_COUNTED_CHUNK_FAILURES)
        return replace(self.shrink(rows, FAILED_CHUNK_DIVISOR**times, "errors"), failures=failures)

    def backoff_s(self, jitter: float) -> float:
        """How long to leave the database in peace before the next chunk; ``jitter`` is a random number, 0 … 1."""
        if not self.failures:
            return 0.0
        return min(MAX_CHUNK_BACKOFF_S, CHUNK_BACKOFF_S * 2.0**self.failures) * (0.5 + 0.5 * jitter)

    def shrink(self, rows: int | None, divisor: int, reason: str) -> "ChunkSize":
        """To a part of what was written, which may be less or more than is wanted now: it was read before."""
        smaller = min(self.rows, (self.rows if rows is None else rows) // divisor)
        return replace(self, rows=int(clamp(smaller, self.min_rows, self.max_rows)), reason=reason)
