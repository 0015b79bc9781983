"""How quick the database is, as one process sees it."""

import time

from tidemill.telemetry.events import emit

EVERY_S = 1.0
WAIT_MS = 1.0  # a free connection is there in a tenth of that


class Watch:
    """Tells of slow transactions at once, of all of them about once a second: an event for each would be many."""

    def __init__(self, slow_ms: float) -> None:
        self._slow_ms = slow_ms
        self._sum_ms = 0.0
        self._transactions = 0
        self._told_at = time.monotonic()

    def ran(self, verb: str, seconds: float) -> None:
        """A transaction took so long, without the wait for its connection."""
        ms = seconds * 1000
        if ms >= self._slow_ms:
            emit("query.slow", verb=verb, ms=round(ms, 1), threshold_ms=self._slow_ms)
        self._sum_ms += ms
        self._transactions += 1
        now = time.monotonic()
        if now - self._told_at >= EVERY_S:
            mean, n = self._sum_ms / self._transactions, self._transactions
            self._sum_ms, self._transactions, self._told_at = 0.0, 0, now
            emit("database.latency", ms=round(mean, 3), transactions=n)

    def waited(self, seconds: float) -> None:
        """It took so long to get a connection."""
        if seconds * 1000 >= WAIT_MS:
            emit("pool.waited", ms=round(seconds * 1000, 1))
