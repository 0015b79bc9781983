"""The share of attempts that fail, and whether that is unusual."""

from dataclasses import dataclass

from tidemill.domain.measure import clamp, moving

KEEP = 0.7  # of what was counted, from window to window
DOUBT = 20  # attempts that are taken to be fine beforehand: two failures are no spike
NORM_ALPHA = 0.05  # what is usual changes slowly
SPIKE = 0.2
UNUSUAL = 2.0  # times what is usual
WIDEST = 4.0


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Failed attempts of the last few windows, against what is usual for the kind.

    A kind whose rows are bad to a third is not in trouble; one that failed never and now fails to a third is.
    So a spike is a rise, and what lasts becomes usual in about a quarter of a minute of windows.
    """

    failed: float = 0.0
    tried: float = 0.0
    norm: float | None = None

    def observe(self, *, failed: int, tried: int) -> "ErrorRate":
        if not tried:
            return self
        after = ErrorRate(KEEP * self.failed + failed, KEEP * self.tried + tried)
        return ErrorRate(after.failed, after.tried, moving(self.norm, after.share, NORM_ALPHA))

    @property
    def share(self) -> float:
        return self.failed / (self.tried + DOUBT)

    @property
    def is_spike(self) -> bool:
        return self.share > SPIKE and self.share > UNUSUAL * (self.norm or 0.0)

    @property
    def spacing(self) -> float:
        """What the backoff of retries is multiplied by: 1 while few fail, up to 4 when all do."""
        return 1 + (WIDEST - 1) * clamp((self.share - SPIKE) / (1 - SPIKE), 0, 1)
