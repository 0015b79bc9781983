"""Those who wait in a line, and those who are sent away: one after another, or all would come again in vain."""

import asyncio
from dataclasses import dataclass

from tidemill.domain.limits.stock import Moment

LONGEST_S = 600.0  # so far ahead each has a moment of its own: by then much may have changed


@dataclass(slots=True)
class Waiter:
    """``patience`` is for blocks; of one that is ``in_line``, for those before it too."""

    answer: "asyncio.Future[Moment | float]"
    run: object
    patience: float
    in_line: bool


class Turns:
    """Of one line, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._next = float("-inf")

    def book(self, now: float, wait: float, pace: float | None) -> float:
        """In how many seconds, at the earliest in ``wait``; without a pace, then."""
        if not pace:
            return wait
        comes = max(now + wait, self._next)
        self._next = min(comes + 1 / pace, now + wait + LONGEST_S)
        return comes - now
