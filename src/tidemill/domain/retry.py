"""When to try again, and how often."""

from dataclasses import dataclass

MAX_THROTTLES = 20  # refusals of an item that charge no attempt; without a bound it could go round for ever
THROTTLE_CAP = 60.0  # seconds between them, at most: an item that is always refused ends after a quarter of an hour


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts per class of error, and the backoff between them, in seconds."""

    max_attempts: int = 3
    max_attempts_not_found: int = 2
    backoff: float = 2.0
    backoff_cap: float = 3600.0
    not_found_delay: float = 30.0

    def delay(self, attempt: int, jitter: float) -> float:
        """Exponential with equal jitter: half is certain, half is ``jitter`` (0 … 1)."""
        # 2**60 s is beyond any cap; without the bound a float overflows at attempt 1025.
        full = min(self.backoff_cap, self.backoff * 2.0 ** min(attempt - 1, 60))
        return full * (0.5 + 0.5 * jitter)

    def delay_of_refusal(self, throttles: int, jitter: float) -> float:
        """The same for an item that was refused so many times, within a bound of its own."""
        return min(self.delay(throttles, jitter), THROTTLE_CAP)
