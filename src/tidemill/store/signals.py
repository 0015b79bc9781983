"""What a process notices of its database: how long transactions take, and whether connections are short."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from tidemill.domain.measure import moving

T = TypeVar("T")


@dataclass(slots=True)
class Signals:
    """Measured at every transaction, so cheaply: two averages and two sums."""

    latency_ms: float | None = None  # moving average of transactions
    pool_wait_ms: float = 0.0  # moving average of waits for a connection
    pool_waited_ms: float = 0.0  # all of them together
    failures: int = 0  # transactions that failed, most of them to be run again

    def note_transaction(self, ms: float) -> None:
        self.latency_ms = moving(self.latency_ms, ms)

    def note_wait(self, ms: float) -> None:
        if ms or self.pool_wait_ms > 0.001:  # noqa: PLR2004  an average that fades is zero at some time
            self.pool_wait_ms = moving(self.pool_wait_ms, ms)
            self.pool_waited_ms += ms
        else:
            self.pool_wait_ms = 0.0


@dataclass(frozen=True, slots=True)
class Ran(Generic[T]):
    """What a verb gave, the milliseconds of the try that succeeded, and how many failed before it."""

    value: T
    ms: float
    failed: int
