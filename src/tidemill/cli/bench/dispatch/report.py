"""From samples to ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.dispatch.places import OURS
from tidemill.cli.bench.dispatch.plan import Plan
from tidemill.cli.bench.figures import not_quiet, result, spread
from tidemill.config import Settings

NAMES = ("postgres", *OURS)


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    found = figures(samples)
    used: dict[str, Any] = {name: getattr(plan, name) for name in ("jobs", "rows", "rounds", "starts", "hints")}
    missing = [name for name in OURS if f"{name}_per_s" not in samples]
    used |= {f"{name}_vs_postgres": f"NOT MEASURED: there is no {name} on this machine" for name in missing}
    return result(ratios(found), found, used, server, is_own)


def ratios(found: Mapping[str, float]) -> dict[str, float]:
    """How much of the speed without a broker is kept with one; and what a limiter costs."""
    ours = [name for name in OURS if f"{name}_per_s" in found]
    against = {f"{name}_vs_postgres": found[f"{name}_per_s"] / found["postgres_per_s"] for name in ours}
    return against | {"limiter_overhead": found["limiter_overhead"]}


def figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Medians; ``wake_p50_ms`` and ``relay_10k_s`` are those of the slowest."""
    found = {name: statistics.median(values) for name, values in samples.items() if not name.endswith("_wake_ms")}
    for name in NAMES:
        wakes = sorted(samples.get(f"{name}_wake_ms", ()))
        if wakes:
            found[f"{name}_wake_p50_ms"] = statistics.median(wakes)
            found[f"{name}_wake_p95_ms"] = wakes[int(0.95 * (len(wakes) - 1))]
    found["wake_p50_ms"] = max(found[f"{name}_wake_p50_ms"] for name in NAMES if f"{name}_wake_p50_ms" in found)
    relayed = [value for name, value in found.items() if name.endswith("_relay_10k_s")]
    if relayed:
        found["relay_10k_s"] = max(relayed)
    found["postgres_spread"] = spread(samples["postgres_per_s"])
    return found


def warning(found: Mapping[str, float]) -> str | None:
    return not_quiet(found["postgres_spread"])
