"""From samples to figures."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.conditions import machine, versions
from tidemill.cli.bench.service.places import PAGE
from tidemill.cli.bench.service.plan import Plan
from tidemill.cli.bench.targets import rounded
from tidemill.config import Settings

LATENCIES = ("job_ms", "bare_ms", "api_ms")
QUIET_MS = 20.0  # a request that does next to nothing takes no longer, if nothing else uses the machine
Pages = Mapping[tuple[str, str], Sequence[float]]


def report(
    plan: Plan,
    samples: Mapping[str, Sequence[float]],
    pages: Pages,
    server: dict[str, str],
    settings: Settings,
    *,
    is_own: bool,
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    used: dict[str, Any] = {name: getattr(plan, name) for name in Plan.__slots__} | {"page_size": PAGE}
    used |= machine(is_own=is_own)
    used |= {name: getattr(settings, name) for name in ("db_max_conns", "rate_limit_per_s", "log_level")}
    found = figures(samples, pages)
    ratios = {"page_last_vs_first": rounded(depth_ratio(pages))}
    return {"ratios": ratios, "figures": found, "versions": versions(server), "settings": used | server}


def figures(samples: Mapping[str, Sequence[float]], pages: Pages) -> dict[str, float]:
    """One number per name; ``page_p99_ms`` is that of the slowest filter."""
    found: dict[str, float] = {}
    for name, values in samples.items():
        if name in LATENCIES:
            found |= _quantiles(name.removesuffix("_ms"), values)
        else:
            found[name] = max(values)
    of_filters, of_depths = _grouped(pages, 0), _grouped(pages, 1)
    for name, values in (of_filters | of_depths).items():
        found[f"page_{name}_p99_ms"] = quantile(values, 0.99)
    found["page_p50_ms"] = max(statistics.median(values) for values in of_filters.values())
    found["page_p99_ms"] = max(quantile(values, 0.99) for values in of_filters.values())
    return {name: rounded(value) for name, value in sorted(found.items())}


def depth_ratio(pages: Pages) -> float:
    """How much longer the last page takes than the first, of the filter where that is most; by medians."""
    first = {name: statistics.median(values) for (name, depth), values in pages.items() if depth == "first"}
    last = {name: statistics.median(values) for (name, depth), values in pages.items() if depth == "last"}
    return max((last[name] / first[name] for name in last), default=1.0)


def quantile(values: Sequence[float], part: float) -> float:
    """The value that so many of the samples do not exceed: one of them, the upper one in doubt."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def warning(found: Mapping[str, float]) -> str | None:
    """What to know before trusting the figures."""
    if found["bare_p99_ms"] <= QUIET_MS:
        return None
    return f"The machine was not quiet: a request that does nothing took {found['bare_p99_ms']:g} ms (p99)."


def _quantiles(stem: str, values: Sequence[float]) -> dict[str, float]:
    return {f"{stem}_p50_ms": statistics.median(values), f"{stem}_p99_ms": quantile(values, 0.99)}


def _grouped(pages: Pages, by: int) -> dict[str, list[float]]:
    groups: dict[str, list[float]] = {}
    for key, values in pages.items():
        groups.setdefault(key[by], []).extend(values)
    return groups
