"""Refusals of whoever is called, told to the limiter so that everybody knows."""

import math
import time
from typing import Protocol

from tidemill.core.stats import clamp
from tidemill.limits.limiter_client import LimiterClient
from tidemill.telemetry.events import emit

DEFAULT_BLOCK_S = 1.0  # how long nobody begins after a refusal that does not say how long
MAX_BLOCK_S = 7 * 86_400.0


class ThrottledQueue(Protocol):
    """The line whose calls they were."""

    name: str
    key: str


class ThrottleReporter:
    """All that come while one is told are told together: fifty answers of one burst are one trip, or two."""

    def __init__(self, line: ThrottledQueue, trips: LimiterClient) -> None:
        self._queue = line
        self._client = trips
        self.unreported = 0
        self._block_s = 0.0
        self._last_started_at = float("-inf")

    def add(self, after: object, started: float) -> float:
        """A call that began then was refused; for how many seconds nobody begins."""
        seconds = _parse_block_s(after)
        self.unreported += 1
        self._block_s = max(self._block_s, seconds)
        self._last_started_at = max(self._last_started_at, started)
        if self.unreported == 1:
            self._client.run_in_background(self._report_throttling())
        return seconds

    async def _report_throttling(self) -> None:
        line = self._queue
        while self.unreported:
            times, after, age = self.unreported, self._block_s, time.monotonic() - self._last_started_at
            self._block_s, self._last_started_at = 0.0, float("-inf")
            try:
                told = await self._client.report_throttled(line.name, line.key, after=after, age=age, times=times)
            finally:
                self.unreported -= times
            if told is None:
                continue
            emit("limiter.blocked", limiter=line.name, key=line.key, seconds=round(told.blocked, 1), refusals=times)
            if told.cuts:
                emit("limiter.slowed", limiter=line.name, key=line.key, share=round(told.share, 3))


def _parse_block_s(after: object) -> float:
    """What a handler says is the handler's: what is no number of seconds says nothing."""
    if isinstance(after, int | float) and -math.inf < after < math.inf:  # isfinite() fails for very large integers
        return clamp(after, 0.0, MAX_BLOCK_S)
    return DEFAULT_BLOCK_S
