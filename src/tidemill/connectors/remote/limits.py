"""How much, how long, and from where."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from tidemill.config import Settings
from tidemill.domain.addresses import Allowed
from tidemill.domain.errors import Interrupted, Unreachable

GoingOn = Callable[[], bool]
GLANCE_S = 0.1  # how long anything waits before it asks whether it is still wanted


@dataclass(frozen=True, slots=True)
class RemoteLimits:
    """Bounds of one download."""

    max_bytes: int
    total_s: float = 300.0
    connect_s: float = 10.0
    silence_s: float = 30.0  # between two pieces
    tries: int = 4  # that bring nothing, one after the other
    backoff_s: float = 0.5
    max_redirects: int = 3
    allowed: Sequence[Allowed] = ()

    @classmethod
    def of(cls, settings: Settings, *, seconds: float | None = None) -> Self:
        """Those of the settings; for somebody who waits, not longer than ``seconds``."""
        allowed = tuple(Allowed.parse(entry) for entry in settings.remote_allow)
        longest = settings.remote_url_timeout if seconds is None else min(seconds, settings.remote_url_timeout)
        return cls(settings.max_file_size_mb << 20, total_s=longest, allowed=allowed)


class Watch:
    """Whether a download may go on: before its deadline, and while somebody wants it."""

    def __init__(self, seconds: float, going_on: GoingOn) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._going_on = going_on

    def check(self) -> None:
        if not self._going_on():
            raise Interrupted("the download was stopped")
        if time.monotonic() >= self._ends_at:
            raise Unreachable(f"the download was not finished within {self._seconds:g} s")

    def within(self, seconds: float) -> float:
        """So many seconds, or as many as are left; never none, which would mean not to wait at all."""
        return max(0.001, min(seconds, self._ends_at - time.monotonic()))

    def has(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._ends_at

    def rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check()
            time.sleep(self.within(min(left, GLANCE_S)))
        self.check()
