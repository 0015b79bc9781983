"""The failure policy of a job, and the retry policy of a kind."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.core.errors import InvalidInput

FAILURE_PERCENT_MIN_ITEMS = 100  # a percentage of fewer settled items says nothing


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """``continue``: never; ``fail_fast``: at the first; ``tolerate``: beyond a count or a percentage."""

    mode: Literal["continue", "fail_fast", "tolerate"] = "continue"
    max_failed: int | None = None
    max_percent: float | None = None

    @classmethod
    def parse(cls, value: dict[str, Any]) -> "FailurePolicy":
        bounds = (value.get("max_failed"), value.get("max_percent"))
        for bound in bounds:
            if not (bound is None or isinstance(bound, int) or (isinstance(bound, float) and math.isfinite(bound))):
                raise InvalidInput(f"a failure policy's bound is a number, not {bound!r}")
        policy = cls(value.get("mode", "continue"), *bounds)
        policy.check()
        return policy

    def check(self) -> None:
        if self.mode not in ("continue", "fail_fast", "tolerate"):
            raise InvalidInput(f"unknown failure policy {self.mode!r}: continue, fail_fast or tolerate")
        bounds = (self.max_failed, self.max_percent)
        if self.mode == "tolerate" and bounds == (None, None):
            raise InvalidInput("failure policy tolerate needs max_failed or max_percent")
        if any(bound is not None and bound < 0 for bound in bounds):
            raise InvalidInput("a failure policy's bounds are not negative")

    def find_failure_reason(self, *, failed: int, settled: int) -> str | None:
        """Why the job must fail now, or None. Percent is of settled items: the total may not be known."""
        if self.mode == "fail_fast" and failed:
            return "fail_fast: an item failed"
        if self.mode != "tolerate":
            return None
        if self.max_failed is not None and failed > self.max_failed:
            return f"tolerate: {failed} items failed, {self.max_failed} are tolerated"
        if (
            self.max_percent is not None
            and settled >= FAILURE_PERCENT_MIN_ITEMS
            and failed * 100 > self.max_percent * settled
        ):
            return f"tolerate: {failed} of {settled} settled items failed, {self.max_percent:g} % are tolerated"
        return None


UNCHARGED_THROTTLES_MAX = 20  # refusals of an item that charge no attempt; without a bound it could go round for ever
THROTTLE_DELAY_MAX_S = (
    60.0  # seconds between them, at most: an item that is always refused ends after a quarter of an hour
)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts per class of error, and the backoff between them, in seconds."""

    max_attempts: int = 3
    max_attempts_not_found: int = 2
    backoff: float = 2.0
    backoff_cap: float = 3600.0
    not_found_delay: float = 30.0

    def compute_delay(self, attempt: int, jitter: float) -> float:
        """Exponential with equal jitter: half is certain, half is ``jitter`` (0 … 1)."""
        # 2**60 s is beyond any cap; without the bound a float overflows at attempt 1025.
        full = min(self.backoff_cap, self.backoff * 2.0 ** min(attempt - 1, 60))
        return full * (0.5 + 0.5 * jitter)

    def compute_throttle_delay(self, throttles: int, jitter: float) -> float:
        """The same for an item that was refused so many times, within a bound of its own."""
        return min(self.compute_delay(throttles, jitter), THROTTLE_DELAY_MAX_S)
