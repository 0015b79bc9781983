"""A limiter: its rate, burst and concurrency, the resulting token bucket, and the parsing of its values."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tidemill.core.errors import InvalidSettings, format_suggestion

LIMITER_RATE_MAX_PER_S = 100_000.0
LIMITER_CONCURRENCY_MAX = 10_000
LIMITER_BURST_MAX = 1_000_000
DEFAULT_BURST_MIN = 2
DEFAULT_BURST_WINDOW_S = 0.1  # the default burst is the number of calls in this time
PERMIT_SLACK_S = 0.1
PERMIT_SLACK_MAX_S = 0.5  # for slow limiters, where a void permit means a long wait
PERMIT_SLACK_MIN_SHARE = 0.05  # of the time between two permits, if the burst is 1
LOWEST_RATE_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Limiter:
    """A limit on starts per second (``rate``), starts at once (``burst``) and calls at a time (``concurrency``).

    A process uses a permit slightly later than its nominal time, because the response and the event loop take time. A
    permit is valid for ``permit_validity_s`` after its nominal time and void afterwards. Actual starts must not exceed
    ``burst + rate x window`` in any window. The bucket is therefore smaller than the burst by the permits that may
    start late: ``bucket_depth``. If the burst is too small for that, permits are further apart: ``permits_per_s`` is
    below the rate.
    """

    name: str
    rate: float | None = None  # per second
    burst: int = 1
    concurrency: int | None = None
    adaptive: bool = True
    lowest: float = LOWEST_RATE_SHARE  # share of the rate: throttling does not reduce it further

    @property
    def permit_validity_s(self) -> float:
        if self.rate is None:
            return 0.0
        return max(
            min(PERMIT_SLACK_MAX_S, PERMIT_SLACK_MIN_SHARE / self.rate),
            min(PERMIT_SLACK_S, (self.burst - 1) / 2 / self.rate),
        )

    @property
    def bucket_depth(self) -> float:
        return 1.0 if self.rate is None else max(1.0, self.burst - self.rate * self.permit_validity_s)

    @property
    def permits_per_s(self) -> float | None:
        """Permits per second; None if the rate is not limited."""
        if self.rate is None:
            return None
        missing = 1.0 - (self.burst - self.rate * self.permit_validity_s)
        return self.rate / (1.0 + missing) if missing > 0 else self.rate

    @property
    def stored_declaration(self) -> dict[str, Any]:
        """The declaration as stored in the database, to detect a changed declaration."""
        return {name: value for name, value in asdict(self).items() if name != "name"}


def compute_default_burst(rate: float) -> int:
    """Return the default burst: the calls of DEFAULT_BURST_WINDOW_S, but at least DEFAULT_BURST_MIN."""
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
    """Parse ``5/s``, ``300/min``, ``1/2s`` or a number per second; raise ValueError if it is invalid."""
    match = _match_rate(value) if isinstance(value, str) else None
    if match is not None and match[3] in LIMITER_UNIT_SECONDS:
        seconds = float(match[2] or 1) * LIMITER_UNIT_SECONDS[match[3]]
        per_second = float(match[1]) / seconds if seconds else math.inf
    elif isinstance(value, int | float) and not isinstance(value, bool):
        per_second = float(value)
    else:
        raise ValueError('Input should be a rate, such as "5/s", "300/min" or "1/2s"')
    if not LIMITER_RATE_MIN_PER_S <= per_second <= LIMITER_RATE_MAX_PER_S:
        raise ValueError(f"Rate must be from 1 per day to {LIMITER_RATE_MAX_PER_S:,.0f} per second")
    return per_second


def parse_delay(value: Any) -> float:
    """Parse ``1s``, ``250ms``, ``2min`` or a number of seconds; raise ValueError if it is invalid."""
    match = _match_duration(value) if isinstance(value, str) else None
    if match is not None and match[2] in LIMITER_UNIT_SECONDS:
        seconds = float(match[1]) * LIMITER_UNIT_SECONDS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError('Input should be a duration, such as "1s", "250ms" or "2min"')
    if not 1 / LIMITER_RATE_MAX_PER_S <= seconds <= LIMITER_DELAY_MAX_S:
        raise ValueError("Delay must be greater than 0 and at most 1 day")
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
    """Raise InvalidSettings if a used limiter is not declared; ``named`` has (user of the limiter, limiter)."""
    problems = [
        f'  - {who} uses limiter "{limiter}", which is not declared' + format_suggestion(limiter, declared)
        for who, limiter in named
        if limiter is not None and limiter not in declared
    ]
    if problems:
        where = '[limiters.NAME] in tidemill.toml, or mill.limiter("NAME", "5/s")'
        raise InvalidSettings("\n".join(["Undeclared limiters:", *problems, f"Declare them with {where}."]))
