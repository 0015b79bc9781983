"""When a watch has its turn."""

import re

UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
AWAY_MAX_S = 900.0
SETTLE_LEAST_S, SETTLE_MOST_S = 1.0, 60.0  # between looks at jobs: one that has taken long takes longer still
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def seconds_of(text: str) -> float:
    """``90s``, ``5m``, ``2h``, ``1d``; else a ValueError."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ValueError("a duration is wanted, like 30s, 5m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def next_look(every: float, failures: int) -> float:
    """Seconds to the next look at a source; longer and longer while it cannot be had, a quarter of an hour at most."""
    return max(every, min(every * 2.0 ** min(failures, 20), AWAY_MAX_S))
