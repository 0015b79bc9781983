"""A limiter: its rate, burst and concurrency, the token bucket that follows from them, and how they are written."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.core.errors import InvalidSettings
from tidemill.core.suggest import format_suggestion

LIMITER_RATE_MAX_PER_S = 100_000.0
LIMITER_CONCURRENCY_MAX = 10_000
LIMITER_BURST_MAX = 1_000_000
DEFAULT_BURST_MIN = 2
DEFAULT_BURST_WINDOW_S = 0.1  # of the rate: what may come at once if nobody says
PERMIT_SLACK_S = 0.1
PERMIT_SLACK_MAX_S = 0.5  # of slow ones, where a permit that comes too late is a long wait
PERMIT_SLACK_MIN_SHARE = 0.05  # of the time between two permits, where nothing may come at once
LOWEST_RATE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limiter:
    """So many starts a second, so many at once, so many at a time.

    A permit is used a little later than it was taken: a process has to be told of it, and its loop has to turn. Within
    ``slack_s`` of its moment it is good, then it is void. So that starts, and not only permits, keep to
    ``burst + rate x window`` in any window, what may come late is taken off the burst: the bucket is ``depth`` deep
    instead. Where nothing can be taken off, permits are a little further apart: ``pace`` is below the rate.
    """

    name: str
    rate: float | None = None  # a second
    burst: int = 1
    concurrency: int | None = None
    adaptive: bool = True
    lowest: float = LOWEST_RATE_SHARE  # of the rate: refusals do not bring it below

    @property
    def slack_s(self) -> float:
        if self.rate is None:
            return 0.0
        return max(
            min(PERMIT_SLACK_MAX_S, PERMIT_SLACK_MIN_SHARE / self.rate),
            min(PERMIT_SLACK_S, (self.burst - 1) / 2 / self.rate),
        )

    @property
    def bucket_depth(self) -> float:
        return 1.0 if self.rate is None else max(1.0, self.burst - self.rate * self.slack_s)

    @property
    def permits_per_s(self) -> float | None:
        """Permits a second."""
        if self.rate is None:
            return None
        missing = 1.0 - (self.burst - self.rate * self.slack_s)
        return self.rate / (1.0 + missing) if missing > 0 else self.rate

    @property
    def declaration(self) -> dict[str, Any]:
        """As it is kept in the database, to see whether it was declared anew."""
        return {name: value for name, value in asdict(self).items() if name != "name"}


def default_burst(rate: float) -> int:
    """What may come at once if nobody says: what comes in a tenth of a second, and two at least."""
    return max(DEFAULT_BURST_MIN, round(rate * DEFAULT_BURST_WINDOW_S))


LIMITER_UNIT_SECONDS = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "m": 60.0,
    "min": 60.0,
    "minute": 60.0,
    "h": 3_600.0,
}
LIMITER_UNIT_SECONDS |= {"hour": 3_600.0, "d": 86_400.0, "day": 86_400.0}
LIMITER_RATE_MIN_PER_S = 1 / 86_400
LIMITER_DELAY_MAX_S = 86_400.0
_match_rate = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*([a-z]+)\s*").fullmatch
_match_duration = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*").fullmatch


def parse_rate(value: Any) -> float:
    """``5/s``, ``300/min``, ``1/2s``, or a number a second."""
    found = _match_rate(value) if isinstance(value, str) else None
    if found is not None and found[3] in LIMITER_UNIT_SECONDS:
        per = float(found[2] or 1) * LIMITER_UNIT_SECONDS[found[3]]
        a_second = float(found[1]) / per if per else math.inf
    elif isinstance(value, int | float) and not isinstance(value, bool):
        a_second = float(value)
    else:
        raise ValueError('Input should be a rate, such as "5/s", "300/min" or "1/2s"')
    if not LIMITER_RATE_MIN_PER_S <= a_second <= LIMITER_RATE_MAX_PER_S:
        raise ValueError(f"A rate is from 1 per day to {LIMITER_RATE_MAX_PER_S:,.0f} per second")
    return a_second


def parse_delay(value: Any) -> float:
    """``1s``, ``250ms``, ``2min``, or a number of seconds."""
    found = _match_duration(value) if isinstance(value, str) else None
    if found is not None and found[2] in LIMITER_UNIT_SECONDS:
        seconds = float(found[1]) * LIMITER_UNIT_SECONDS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError('Input should be a duration, such as "1s", "250ms" or "2min"')
    if not 1 / LIMITER_RATE_MAX_PER_S <= seconds <= LIMITER_DELAY_MAX_S:
        raise ValueError("A delay is more than 0 and at most 1 day")
    return seconds


def parse_burst(value: Any) -> int:
    return _parse_bounded_integer(value, LIMITER_BURST_MAX)


def parse_concurrency(value: Any) -> int:
    return _parse_bounded_integer(value, LIMITER_CONCURRENCY_MAX)


def _parse_bounded_integer(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"Input should be an integer from 1 to {most:,}")
    return value


def check_limiters_declared(declared: Mapping[str, Limiter], named: Iterable[tuple[str, str | None]]) -> None:
    """Every limiter that somebody names is declared: (who, limiter); InvalidSettings with those that are not."""
    wrong = [
        f"  - {who} has limit={limiter!r}, which is not declared" + format_suggestion(limiter, declared)
        for who, limiter in named
        if limiter is not None and limiter not in declared
    ]
    if wrong:
        where = '[limiters.NAME] in a tidemill.toml, or mill.limiter("NAME", "5/s")'
        raise InvalidSettings("\n".join(["these limiters are missing:", *wrong, f"declare them: {where}"]))
