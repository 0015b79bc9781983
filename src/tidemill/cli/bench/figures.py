"""What all reports of bare and other turns have in common."""

import statistics
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tidemill.cli.bench.conditions import machine, versions
from tidemill.cli.bench.targets import rounded

STEADY = 0.2  # bare turns all do the same work: if they differ by more, something else used the machine


def medians(samples: Mapping[str, Sequence[float]], peaks: Collection[str]) -> dict[str, float]:
    """The median of each; of what is named by ``peaks`` the greatest."""
    return {name: max(values) if name in peaks else statistics.median(values) for name, values in samples.items()}


def spread(values: Sequence[float]) -> float:
    """How far turns of the same work lie apart, as a part of their median."""
    return (max(values) - min(values)) / statistics.median(values)


def not_quiet(spread: float) -> str | None:
    """What to know before trusting the ratios."""
    if spread <= STEADY:
        return None
    return "The machine was not quiet: the bare turns differ too much to trust these ratios."


def result(
    ratios: Mapping[str, float], found: Mapping[str, float], used: dict[str, Any], server: dict[str, str], is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    return {
        "ratios": {name: round(value, 3) for name, value in sorted(ratios.items())},
        "figures": {name: rounded(value) for name, value in sorted(found.items())},
        "versions": versions(server),
        "settings": used | machine(is_own=is_own) | server,
    }
