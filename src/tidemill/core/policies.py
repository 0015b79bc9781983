"""The failure policy of a job, and the retry policy of a kind."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from tidemill.core.errors import InvalidInput

FAILURE_PERCENT_MIN_ITEMS = 100  # a percentage of fewer settled items is not meaningful


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """When failed items fail their job.

    ``continue``: never; ``fail_fast``: at the first failed item; ``tolerate``: above a count or a percentage.
    """

    mode: Literal["continue", "fail_fast", "tolerate"] = "continue"
    max_failed: int | None = None
    max_percent: float | None = None

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "FailurePolicy":
        bounds = (value.get("max_failed"), value.get("max_percent"))
        for bound in bounds:
            if not (bound is None or isinstance(bound, int) or (isinstance(bound, float) and math.isfinite(bound))):
                raise InvalidInput(f'The limit of a failure policy must be a number, not "{bound}"')
        policy = cls(value.get("mode", "continue"), *bounds)
        policy.validate()
        return policy

    def validate(self) -> None:
        if self.mode not in ("continue", "fail_fast", "tolerate"):
            raise InvalidInput(f'Unknown failure policy "{self.mode}": use continue, fail_fast or tolerate')
        bounds = (self.max_failed, self.max_percent)
        if self.mode == "tolerate" and bounds == (None, None):
            raise InvalidInput('Failure policy "tolerate" requires max_failed or max_percent')
        if any(bound is not None and bound < 0 for bound in bounds):
            raise InvalidInput("The limits of a failure policy must not be negative")

    def find_failure_reason(self, *, failed: int, settled: int) -> str | None:
        """Return why the job must fail now, or None.

        The percentage refers to settled items, because the total may not be known yet.
        """
        if self.mode == "fail_fast" and failed:
            return 'An item failed; the failure policy is "fail_fast"'
        if self.mode != "tolerate":
            return None
        if self.max_failed is not None and failed > self.max_failed:
            return f"{failed} items failed; the failure policy tolerates {self.max_failed}"
        if (
            self.max_percent is not None
            and settled >= FAILURE_PERCENT_MIN_ITEMS
            and failed * 100 > self.max_percent * settled
        ):
            return f"{failed} of {settled} settled items failed; the failure policy tolerates {self.max_percent:g} %"
        return None


UNCHARGED_THROTTLES_MAX = 20  # throttled calls of an item that are not attempts; without a limit it could retry forever
THROTTLE_DELAY_MAX_S = 60.0  # between throttled calls: an item that is always throttled fails after about 15 minutes


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The number of attempts per class of error, and the backoff between them in seconds."""

    max_attempts: int = 3
    max_attempts_not_found: int = 2
    backoff: float = 2.0
    backoff_cap: float = 3600.0
    not_found_delay: float = 30.0

    def compute_delay(self, attempt: int, jitter: float) -> float:
        """Return the exponential backoff with equal jitter: half is fixed, half is scaled by ``jitter`` (0 … 1)."""
        # 2**60 s exceeds any cap. Without this limit the float overflows at attempt 1025.
        full = min(self.backoff_cap, self.backoff * 2.0 ** min(attempt - 1, 60))
        return full * (0.5 + 0.5 * jitter)

    def compute_throttle_delay(self, throttles: int, jitter: float) -> float:
        """Return the backoff of an item that was throttled ``throttles`` times, with its own upper limit."""
        return min(self.compute_delay(throttles, jitter), THROTTLE_DELAY_MAX_S)
