"""The places of a limiter that one process has, where only so many may be at it at a time."""

from tidemill.domain.measure import clamp, moving
from tidemill.store.limiters import Answer

SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.02, 0.5  # for a place that somebody else has


class Places:
    """Those in use are counted always: whether places are, the limiter's row says, and it may change its mind."""

    def __init__(self, *, counted: bool) -> None:
        self.counted = counted
        self.held = self.in_use = 0
        self.untold = False  # whether we have fewer than the row says
        self.crowded = False  # whether others wait for them as we do
        self._stay_s: float | None = None  # how long one is used

    @property
    def free(self) -> int:
        return self.held - self.in_use

    @property
    def is_full(self) -> bool:
        return self.counted and self.free <= 0

    def lacking(self, waiting: int) -> int:
        return max(0, waiting - self.free) if self.counted else 0

    def left(self, seconds: float | None) -> None:
        self.in_use -= 1
        if seconds is not None:
            self._stay_s = moving(self._stay_s, seconds)

    def let_go(self, places: int) -> None:
        if places > 0:
            self.held -= places
            self.untold = True

    def hear(self, answer: Answer, *, lacks: bool) -> None:
        self.held += answer.places
        self.crowded = answer.crowded or lacks
        self.counted = answer.counted
        if not self.counted:
            self.let_go(self.held)

    @property
    def look_s(self) -> float:
        """When to look again whether somebody has left."""
        return clamp(self._stay_s or 0.0, SHORTEST_LOOK_S, LONGEST_LOOK_S)
