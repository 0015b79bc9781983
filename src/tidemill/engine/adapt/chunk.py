"""How many rows of a source are written at once."""

from dataclasses import dataclass, replace

from tidemill.domain.measure import clamp, moving

GROWTH = 2
HARD = 4  # a chunk that failed is followed by one of a quarter
MOST_FAILURES = 8  # that count: a quarter of a quarter … is the smallest chunk long before
BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0


@dataclass(frozen=True, slots=True)
class ChunkSize:
    """Rows per ingest chunk: doubled while the database is quick, halved when it is slow, quartered when it fails."""

    rows: int
    low: int
    high: int
    good_ms: float
    bad_ms: float
    average_ms: float | None = None
    failures: int = 0  # in a row
    reason: str = ""  # why it shrank, if it did

    @classmethod
    def start(cls, *, low: int, high: int, good_ms: float, bad_ms: float) -> "ChunkSize":
        return cls(low, low, high, good_ms, bad_ms)

    def observe(
        self, ms: float, *, rows: int | None = None, failed: int = 0, waited_ms: float = 0.0, full: bool = True
    ) -> "ChunkSize":
        """A chunk of so many rows was written in ``ms``, after so many tries that failed.

        ``waited_ms``: somebody had to wait for a connection meanwhile, and a smaller chunk gives it back sooner.
        A chunk that is not ``full`` was bounded by its bytes: no reason to try more rows.
        """
        average = moving(self.average_ms, ms)
        after = replace(self, average_ms=average, failures=0, reason="")
        if failed:
            return after.fail(failed, rows=rows)
        if waited_ms > 0:
            return after.shrink(rows, GROWTH, "pool")
        if ms > self.bad_ms:
            return after.shrink(rows, GROWTH, "slow")
        # Twice the rows may take twice the time: where the two targets are close, that must not be too slow at once.
        if full and average < self.good_ms and GROWTH * average <= self.bad_ms:
            return replace(after, rows=int(clamp(self.rows * GROWTH, self.low, self.high)))
        return after

    def fail(self, times: int = 1, *, rows: int | None = None) -> "ChunkSize":
        """So many tries at writing a chunk failed."""
        times = min(times, MOST_FAILURES)
        failures = min(self.failures + times, MOST_FAILURES)
        return replace(self.shrink(rows, HARD**times, "errors"), failures=failures)

    def backoff_s(self, jitter: float) -> float:
        """How long to leave the database in peace before the next chunk; ``jitter`` is a random number, 0 … 1."""
        if not self.failures:
            return 0.0
        return min(LONGEST_BACKOFF_S, BACKOFF_S * 2.0**self.failures) * (0.5 + 0.5 * jitter)

    def shrink(self, rows: int | None, divisor: int, reason: str) -> "ChunkSize":
        """To a part of what was written, which may be less or more than is wanted now: it was read before."""
        smaller = min(self.rows, (self.rows if rows is None else rows) // divisor)
        return replace(self, rows=int(clamp(smaller, self.low, self.high)), reason=reason)
