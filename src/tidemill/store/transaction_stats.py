"""What a process notices of its database: how long transactions take, and whether connections are short.

How quick the database is, as one process sees it.
"""

import time
from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill.core.stats import update_moving_average
from tidemill.telemetry.events import emit

T = TypeVar("T")


@dataclass(slots=True)
class TransactionStats:
    """Measured at every transaction, so cheaply: two averages and two sums."""

    latency_ms: float | None = None  # moving average of transactions
    pool_wait_ms: float = 0.0  # moving average of waits for a connection
    pool_waited_ms: float = 0.0  # all of them together
    failures: int = 0  # transactions that failed, most of them to be run again

    def record_transaction(self, ms: float) -> None:
        self.latency_ms = update_moving_average(self.latency_ms, ms)

    def record_pool_wait(self, ms: float) -> None:
        if ms or self.pool_wait_ms > 0.001:  # noqa: PLR2004  an average that fades is zero at some time
            self.pool_wait_ms = update_moving_average(self.pool_wait_ms, ms)
            self.pool_waited_ms += ms
        else:
            self.pool_wait_ms = 0.0


@dataclass(frozen=True, slots=True)
class MeasuredResult(Generic[T]):
    """What a verb gave, the milliseconds of the try that succeeded, and how many failed before it."""

    value: T
    ms: float
    failed: int


LATENCY_REPORT_INTERVAL_S = 1.0
POOL_WAIT_MIN_MS = 1.0  # a free connection is there in a tenth of that


class QueryTimer:
    """Tells of slow transactions at once, of all of them about once a second: an event for each would be many."""

    def __init__(self, slow_ms: float) -> None:
        self._slow_ms = slow_ms
        self._sum_ms = 0.0
        self._transactions = 0
        self._told_at = time.monotonic()

    def record_transaction(self, verb: str, seconds: float) -> None:
        """A transaction took so long, without the wait for its connection."""
        ms = seconds * 1000
        if ms >= self._slow_ms:
            emit("query.slow", verb=verb, ms=round(ms, 1), threshold_ms=self._slow_ms)
        self._sum_ms += ms
        self._transactions += 1
        now = time.monotonic()
        if now - self._told_at >= LATENCY_REPORT_INTERVAL_S:
            mean, n = self._sum_ms / self._transactions, self._transactions
            self._sum_ms, self._transactions, self._told_at = 0.0, 0, now
            emit("database.latency", ms=round(mean, 3), transactions=n)

    def record_pool_wait(self, seconds: float) -> None:
        """It took so long to get a connection."""
        if seconds * 1000 >= POOL_WAIT_MIN_MS:
            emit("pool.waited", ms=round(seconds * 1000, 1))
