"""From samples to figures, from figures to ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.figures import not_quiet, result, spread
from tidemill.cli.bench.plan import Plan
from tidemill.cli.bench.targets import rounded
from tidemill.config import Settings

PEAKS = ("rss_mb", "rss_parent_mb")  # of these the greatest counts, of all others the median


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], settings: Settings, is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    found = figures(samples)
    used: dict[str, Any] = {
        "rows": plan.rows,
        "large_rows": plan.large,
        "rounds": plan.rounds,
        "large_rounds": plan.large_rounds,
        "starts": plan.starts,
        "ingest_path": ingest_path(found),
    }
    names = ("claim_max", "worker_lanes", "batch_size", "flush_buffer", "ingest_max_rows", "ingest_max_batch_bytes")
    used |= {name: getattr(settings, name) for name in names}
    return result(ratios(found, plan.cost_ratio), found, used, server, is_own)


def figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """One number per name."""
    found: dict[str, float] = {}
    for name, values in samples.items():
        if name in ("start_ms", "start_after_commit_ms"):
            stem = name.removesuffix("_ms")
            found[f"{stem}_p50_ms"] = statistics.median(values)
            found[f"{stem}_p95_ms"] = sorted(values)[int(0.95 * (len(values) - 1))]
        else:
            found[name] = max(values) if name.startswith(PEAKS) else statistics.median(values)
    found["bare_spread"] = max(spread(samples["bare_copy_per_s"]), spread(samples["bare_process_per_s"]))
    for suffix in ("", "_large"):
        found["cost_us_per_item" + suffix] = cost_us(found, suffix)
    found["rss_growth_mb"] = found["rss_mb_large"] - found["rss_mb"]
    return {name: rounded(value) for name, value in sorted(found.items())}


def cost_us(found: Mapping[str, float], suffix: str) -> float:
    """Microseconds that an item takes to be read from a file and then processed by two processes."""
    return 1e6 / found["ingest_file_per_s" + suffix] + 1e6 / found["process_2_per_s" + suffix]


def ingest_path(found: Mapping[str, float]) -> str:
    """The quicker of the two ways in."""
    return "file" if found["ingest_file_per_s"] >= found["ingest_inline_per_s"] else "inline"


def ratios(found: Mapping[str, float], cost_ratio: str) -> dict[str, float]:
    """Every ratio is made of two figures, so that it can be checked."""
    made = {cost_ratio: found["cost_us_per_item_large"] / found["cost_us_per_item"]}
    for suffix in ("", "_large"):
        copy, bare = found.get("bare_copy_per_s" + suffix), found.get("bare_process_per_s" + suffix)
        if copy is None or bare is None:
            continue
        for path in ("file", "inline"):
            made[f"ingest_{path}_vs_copy{suffix}"] = found[f"ingest_{path}_per_s{suffix}"] / copy
        made["ingest_vs_copy" + suffix] = made[f"ingest_{ingest_path(found)}_vs_copy{suffix}"]
        made["process_1_vs_bare" + suffix] = found["process_1_per_s" + suffix] / bare
        made["process_vs_bare" + suffix] = found["process_2_per_s" + suffix] / bare
    return {name: round(value, 3) for name, value in sorted(made.items())}


def warning(found: Mapping[str, float]) -> str | None:
    return not_quiet(found["bare_spread"])
