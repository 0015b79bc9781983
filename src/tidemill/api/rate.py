"""So many requests a second from one caller, with room for a burst."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

CALLERS_MAX = 10_000
OF_ONE_CALLER = 64  # bits of an IPv6 address: whoever has one address has all of its network


def neighbours(address: str | None) -> str:
    """Where a stranger comes from, as far as strangers cannot choose it."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found), OF_ONE_CALLER), strict=False))


@dataclass(frozen=True, slots=True)
class Bucket:
    """Tokens left, and when that was."""

    tokens: float
    at: float

    def take(self, now: float, *, rate: float, burst: float) -> tuple["Bucket", bool]:
        tokens = min(burst, self.tokens + (now - self.at) * rate)
        return (Bucket(tokens - 1, now), True) if tokens >= 1 else (Bucket(tokens, now), False)


class RateLimit:
    """In this process's memory: what it guards is this process. The callers seen longest ago are forgotten."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, caller: str) -> tuple[bool, dict[str, str]]:
        """Whether the caller may go on, and the headers that say how much is left."""
        now = self._clock()
        bucket = self._buckets.pop(caller, Bucket(self._burst, now))
        bucket, may = bucket.take(now, rate=self._rate, burst=self._burst)
        self._buckets[caller] = bucket
        if len(self._buckets) > CALLERS_MAX:
            self._buckets.popitem(last=False)
        window = max(1, round(self._burst / self._rate))
        wait = max(1, round((1 - bucket.tokens) / self._rate + 0.5))
        headers = {
            "ratelimit-policy": f'"default";q={self._burst:.0f};w={window}',
            "ratelimit": f'"default";r={max(0, int(bucket.tokens))};t={window if may else wait}',
        }
        return may, headers if may else headers | {"retry-after": str(wait)}
