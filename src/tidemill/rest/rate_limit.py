"""Rate limit per caller, with a burst."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from tidemill.runtime import Runtime

TRACKED_CALLERS_MAX = 10_000


CALLER_IPV6_PREFIX_BITS = 64  # a client usually controls all addresses of its /64 network


def normalize_caller_address(address: str | None) -> str:
    """Return the part of an address that an unauthenticated client cannot choose."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or IPv6Network((int(parsed), CALLER_IPV6_PREFIX_BITS), strict=False))


@dataclass(frozen=True, slots=True)
class RequestTokenBucket:
    """The tokens that were left at a time."""

    tokens: float
    at: float

    def take_token(self, now: float, *, rate: float, burst: float) -> tuple["RequestTokenBucket", bool]:
        tokens = min(burst, self.tokens + (now - self.at) * rate)
        return (RequestTokenBucket(tokens - 1, now), True) if tokens >= 1 else (RequestTokenBucket(tokens, now), False)


class RequestRateLimiter:
    """Token buckets in memory, because they protect this process only. The least recently seen callers are evicted."""

    def __init__(self, *, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, RequestTokenBucket] = OrderedDict()

    def admit_request(self, caller: str) -> tuple[bool, dict[str, str]]:
        """Return whether the request is admitted, and the rate-limit headers of the response."""
        now = self._clock()
        bucket = self._buckets.pop(caller, RequestTokenBucket(self._burst, now))
        bucket, is_admitted = bucket.take_token(now, rate=self._rate, burst=self._burst)
        self._buckets[caller] = bucket
        if len(self._buckets) > TRACKED_CALLERS_MAX:
            self._buckets.popitem(last=False)
        window = max(1, round(self._burst / self._rate))
        wait = max(1, round((1 - bucket.tokens) / self._rate + 0.5))
        headers = {
            "ratelimit-policy": f'"default";q={self._burst:.0f};w={window}',
            "ratelimit": f'"default";r={max(0, int(bucket.tokens))};t={window if is_admitted else wait}',
        }
        return is_admitted, headers if is_admitted else headers | {"retry-after": str(wait)}


def make_rate_limiter(runtime: Runtime) -> RequestRateLimiter:
    settings = runtime.settings
    return RequestRateLimiter(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
