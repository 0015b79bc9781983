"""Rates and times as people write them; a ValueError says what was wanted."""

import math
import re
from typing import Any

from tidemill.domain.limits.limiter import MAX_BURST, MAX_CONCURRENCY, MAX_RATE

UNITS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0, "h": 3_600.0}
UNITS |= {"hour": 3_600.0, "d": 86_400.0, "day": 86_400.0}
SLOWEST = 1 / 86_400
LONGEST_DELAY_S = 86_400.0
_RATE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*/\s*(\d+(?:\.\d+)?)?\s*([a-z]+)\s*").fullmatch
_TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*").fullmatch


def rate(value: Any) -> float:
    """``5/s``, ``300/min``, ``1/2s``, or a number a second."""
    found = _RATE(value) if isinstance(value, str) else None
    if found is not None and found[3] in UNITS:
        per = float(found[2] or 1) * UNITS[found[3]]
        a_second = float(found[1]) / per if per else math.inf
    elif isinstance(value, int | float) and not isinstance(value, bool):
        a_second = float(value)
    else:
        raise ValueError('a rate is wanted, such as "5/s", "300/min" or "1/2s"')
    if not SLOWEST <= a_second <= MAX_RATE:
        raise ValueError(f"a rate is from one a day to {MAX_RATE:,.0f} a second")
    return a_second


def delay(value: Any) -> float:
    """``1s``, ``250ms``, ``2min``, or a number of seconds."""
    found = _TIME(value) if isinstance(value, str) else None
    if found is not None and found[2] in UNITS:
        seconds = float(found[1]) * UNITS[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    else:
        raise ValueError('a time is wanted, such as "1s", "250ms" or "2min"')
    if not 1 / MAX_RATE <= seconds <= LONGEST_DELAY_S:
        raise ValueError("a delay is positive, and a day at most")
    return seconds


def burst(value: Any) -> int:
    return _whole(value, MAX_BURST)


def concurrency(value: Any) -> int:
    return _whole(value, MAX_CONCURRENCY)


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise ValueError(f"a whole number from 1 to {most:,} is wanted")
    return value
