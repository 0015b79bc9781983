"""Refusals of whoever is called, told to the limiter so that everybody knows."""

import math
import time
from typing import Protocol

from tidemill.domain.measure import clamp
from tidemill.engine.limits.trips import Trips
from tidemill.telemetry.events import emit

REFUSED_S = 1.0  # how long nobody begins after a refusal that does not say how long
LONGEST_BLOCK_S = 7 * 86_400.0


class Refused(Protocol):
    """The line whose calls they were."""

    name: str
    key: str


class Refusals:
    """All that come while one is told are told together: fifty answers of one burst are one trip, or two."""

    def __init__(self, line: Refused, trips: Trips) -> None:
        self._line = line
        self._trips = trips
        self.untold = 0
        self._seconds = 0.0
        self._started = float("-inf")

    def add(self, after: object, started: float) -> float:
        """A call that began then was refused; for how many seconds nobody begins."""
        seconds = _seconds(after)
        self.untold += 1
        self._seconds = max(self._seconds, seconds)
        self._started = max(self._started, started)
        if self.untold == 1:
            self._trips.beside(self._tell())
        return seconds

    async def _tell(self) -> None:
        line = self._line
        while self.untold:
            times, after, age = self.untold, self._seconds, time.monotonic() - self._started
            self._seconds, self._started = 0.0, float("-inf")
            try:
                told = await self._trips.refuse(line.name, line.key, after=after, age=age, times=times)
            finally:
                self.untold -= times
            if told is None:
                continue
            emit("limiter.blocked", limiter=line.name, key=line.key, seconds=round(told.blocked, 1), refusals=times)
            if told.cuts:
                emit("limiter.slowed", limiter=line.name, key=line.key, share=round(told.share, 3))


def _seconds(after: object) -> float:
    """What a handler says is the handler's: what is no number of seconds says nothing."""
    if isinstance(after, int | float) and -math.inf < after < math.inf:  # isfinite() fails for very large integers
        return clamp(after, 0.0, LONGEST_BLOCK_S)
    return REFUSED_S
