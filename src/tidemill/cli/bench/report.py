"""From samples to figures, from figures to ratios, and how they look."""

import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

from rich.table import Table

from tidemill.cli.bench.plan import Plan
from tidemill.cli.views import console
from tidemill.config import Settings

PEAKS = ("rss_mb", "rss_parent_mb")  # of these the greatest counts, of all others the median
AT_LEAST = {"ingest_vs_copy": 0.5, "process_vs_bare": 0.5}
AT_MOST = {"cost_1m_vs_100k": 1.2, "cost_large_vs_small": 1.2, "rss_mb": 150, "dead_tuples_per_item": 0.01}
AT_MOST |= {"start_p50_ms": 20}
STEADY = 0.2  # bare turns all do the same work: if they differ by more, something else used the machine


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], settings: Settings, *, is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    found = figures(samples)
    versions = {
        "tidemill": version("tidemill"),
        "python": platform.python_version(),
        "postgresql": server.pop("server_version"),
        "psycopg": version("psycopg"),
    }
    used: dict[str, Any] = {
        "rows": plan.rows,
        "large_rows": plan.large,
        "rounds": plan.rounds,
        "large_rounds": plan.large_rounds,
        "starts": plan.starts,
        "ingest_path": ingest_path(found),
        "database": "embedded, its own" if is_own else "DATABASE_URL",
        "cpus": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    names = ("claim_max", "worker_lanes", "batch_size", "flush_buffer", "ingest_max_rows", "ingest_max_batch_bytes")
    used |= {name: getattr(settings, name) for name in names} | server
    return {"ratios": ratios(found, plan.cost_ratio), "figures": found, "versions": versions, "settings": used}


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
    found["bare_spread"] = spread(samples)
    for suffix in ("", "_large"):
        found["cost_us_per_item" + suffix] = cost_us(found, suffix)
    found["rss_growth_mb"] = found["rss_mb_large"] - found["rss_mb"]
    return {name: _rounded(value) for name, value in sorted(found.items())}


def spread(samples: Mapping[str, Sequence[float]]) -> float:
    """How far bare turns of the same work lie apart, as a part of their median; the worse of the two steps."""
    steps = (samples["bare_copy_per_s"], samples["bare_process_per_s"])
    return max((max(values) - min(values)) / statistics.median(values) for values in steps)


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


def is_met(name: str, value: float) -> bool | None:
    """Whether a target is reached; None where there is none."""
    if name in AT_LEAST:
        return value >= AT_LEAST[name]
    return value <= AT_MOST[name] if name in AT_MOST else None


def show(result: dict[str, Any]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for part in ("ratios", "figures"):
        for name, value in result[part].items():
            table.add_row(name, f"{value:,}", _target(name), _mark(is_met(name, value)))
        table.add_section()
    console.print(table)
    if result["figures"]["bare_spread"] > STEADY:
        console.print("[yellow]The machine was not quiet: the bare turns differ too much to trust these ratios.[/]")
    for part in ("versions", "settings"):
        console.print(f"[dim]{part}: " + ", ".join(f"{k} {v}" for k, v in result[part].items()), highlight=False)


def _target(name: str) -> str:
    if name in AT_LEAST:
        return f"≥ {AT_LEAST[name]:g}"
    return f"≤ {AT_MOST[name]:g}" if name in AT_MOST else ""


def _mark(met: bool | None) -> str:
    return {None: "", True: "[green]ok[/]", False: "[red]missed[/]"}[met]


def _rounded(value: float) -> float:
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")  # noqa: PLR2004
