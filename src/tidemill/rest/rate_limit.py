"""Limits the requests of one caller per second, with room for a burst."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from tidemill.runtime import Runtime

TRACKED_CALLERS_MAX = 10_000


CALLER_IPV6_PREFIX_BITS = 64  # bits of an IPv6 address: whoever has one address has all of its network


def normalize_caller_address(address: str | None) -> str:
    """Where a stranger comes from, as far as strangers cannot choose it."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped or IPv6Network((int(found), CALLER_IPV6_PREFIX_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class RequestTokenBucket:
    """Tokens left, and when that was."""

    tokens: float
    at: float

    def take_token(self, now: float, *, rate: float, burst: float) -> tuple["RequestTokenBucket", bool]:
        tokens = min(burst, self.tokens + (now - self.at) * rate)
        return (RequestTokenBucket(tokens - 1, now), True) if tokens >= 1 else (RequestTokenBucket(tokens, now), False)


class RequestRateLimiter:
    """In this process's memory: what it guards is this process. The callers seen longest ago are forgotten."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, RequestTokenBucket] = OrderedDict()

    def admit_request(self, caller: str) -> tuple[bool, dict[str, str]]:
        """Whether the caller may go on, and the headers that say how much is left."""
        now = self._clock()
        bucket = self._buckets.pop(caller, RequestTokenBucket(self._burst, now))
        bucket, may = bucket.take_token(now, rate=self._rate, burst=self._burst)
        self._buckets[caller] = bucket
        if len(self._buckets) > TRACKED_CALLERS_MAX:
            self._buckets.popitem(last=False)
        window = max(1, round(self._burst / self._rate))
        wait = max(1, round((1 - bucket.tokens) / self._rate + 0.5))
        headers = {
            "ratelimit-policy": f'"default";q={self._burst:.0f};w={window}',
            "ratelimit": f'"default";r={max(0, int(bucket.tokens))};t={window if may else wait}',
        }
        return may, headers if may else headers | {"retry-after": str(wait)}


def make_rate_limiter(runtime: Runtime) -> RequestRateLimiter:
    settings = runtime.settings
    return RequestRateLimiter(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
