"""What the reports of all benchmarks share: targets, versions, machine, medians and the printed table."""

import os
import platform
import statistics
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from rich.table import Table

from tidemill.terminal.console import console


def collect_versions(server: dict[str, str]) -> dict[str, str]:
    """Return the versions that affect the figures; remove ``server_version`` from ``server``."""
    return {
        "tidemill": version("tidemill"),
        "python": platform.python_version(),
        "postgresql": server.pop("server_version"),
        "psycopg": version("psycopg"),
    }


def describe_machine(*, is_own: bool) -> dict[str, Any]:
    return {
        "database": "temporary embedded server" if is_own else "DATABASE_URL",
        "cpus": os.cpu_count(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


ENGINE_MINIMUMS = {"ingest_vs_copy": 0.5, "process_vs_bare": 0.5}
EXPORT_MINIMUMS = {
    "csv_stream_vs_copy": 0.8,
    "csv_file_vs_copy": 0.8,
    "ndjson_vs_copy": 0.9,
    "parquet_vs_copy": 0.3,
    "xlsx_vs_xlsxwriter": 3,
    "files_vs_obstore": 0.5,
    "reused_per_s": 5_000,
}
DISPATCH_MINIMUMS = {"redis_vs_postgres": 0.8, "rabbitmq_vs_postgres": 0.8}
LOAD_MINIMUMS = {"job_last_vs_first_tenth": 0.8, "snapshot_last_vs_first_tenth": 0.5}
TARGET_MINIMUMS = ENGINE_MINIMUMS | EXPORT_MINIMUMS | DISPATCH_MINIMUMS | LOAD_MINIMUMS
ENGINE_MAXIMUMS = {
    "cost_1m_vs_100k": 1.2,
    "cost_large_vs_small": 1.2,
    "rss_mb": 150,
    "dead_tuples_per_item": 0.01,
    "start_p50_ms": 20,
}
API_MAXIMUMS = {
    "page_p99_ms": 25,
    "page_last_vs_first": 2,
    "job_p99_ms": 20,
    "api_p99_ms": 250,
    "api_errors": 0,
    "api_rss_growth_mb": 16,
    "upload_rss_growth_mb": 64,
}
IMPORT_MAXIMUMS = {
    "import_wall_vs_copy": 2.0,
    "import_ndjson_wall_vs_copy": 2.5,
    "all_bad_vs_all_good": 1.1,
    "locale_vs_plain": 1.25,
    "undoable_vs_plain": 1.15,
    "undo_vs_import": 1.5,
    "natural_key_vs_id": 1.3,
    "first_row_s": 1,
    "import_rss_mb": 200,
}
DISPATCH_MAXIMUMS = {
    "wake_p50_ms": 20,
    "postgres_wake_p50_ms": 20,
    "redis_wake_p50_ms": 20,
    "rabbitmq_wake_p50_ms": 20,
    "relay_10k_s": 2,
    "limiter_overhead": 0.05,
}
NEIGHBOUR_MAXIMUMS = {"neighbour_import_vs_quiet": 2, "neighbour_health_p99_ms": 250}
LOAD_MAXIMUMS = {
    "job_cost_vs_10k": 1.2,
    "job_rss_mb": 150,
    "workers_false_idle_percent": 1,
    "clients_errors": 0,
    "small_job_start_p99_ms": 2_000,
    "soak_growth_percent": 2,
}
TARGET_MAXIMUMS = (
    ENGINE_MAXIMUMS | API_MAXIMUMS | IMPORT_MAXIMUMS | DISPATCH_MAXIMUMS | NEIGHBOUR_MAXIMUMS | LOAD_MAXIMUMS
)


def meets_target(name: str, value: float) -> bool | None:
    """Return whether a figure meets its target; None if it has no target."""
    if name in TARGET_MINIMUMS:
        return value >= TARGET_MINIMUMS[name]
    return value <= TARGET_MAXIMUMS[name] if name in TARGET_MAXIMUMS else None


def print_result_table(result: dict[str, Any], warning: str | None = None) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("name")
    table.add_column("measured", justify="right")
    table.add_column("target", justify="right")
    table.add_column("")
    for part in ("ratios", "figures"):
        for name, value in result[part].items():
            table.add_row(name, f"{value:,}", _format_target(name), _format_target_mark(meets_target(name, value)))
        table.add_section()
    console.print(table)
    if warning is not None:
        console.print(f"[yellow]{warning}[/]")
    for part in ("versions", "settings"):
        console.print(f"[dim]{part}: " + ", ".join(f"{k} {v}" for k, v in result[part].items()), highlight=False)


def print_attack_table(attacks: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the responses that each attack received, by status, and the processor time of its client."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("attack", "responses by status", "client CPU s"):
        table.add_column(name, justify="right" if name.endswith("s") and "CPU" in name else "left")
    for name, report in attacks.items():
        statuses = ", ".join(f"{status} × {count:,}" for status, count in report["statuses"].items())
        table.add_row(name, statuses, f"{report['cpu_s']:.2f}")
    console.print(table)


def print_quota_table(result: Mapping[str, Any]) -> None:
    """Print the response to each request that exceeds a limit, and the number of accepted jobs."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("limit", "request", "status", "detail"):
        table.add_column(name)
    for one in result["quotas"]:
        table.add_row(one["limit"], one["request"], str(one["status"]), one["detail"])
    console.print(table)
    console.print(f"{result['accepted_jobs']} jobs were accepted, and all of them are stored completely")


def round_figure(value: float) -> float:
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")  # noqa: PLR2004


def _format_target(name: str) -> str:
    if name in TARGET_MINIMUMS:
        return f"≥ {TARGET_MINIMUMS[name]:g}"
    return f"≤ {TARGET_MAXIMUMS[name]:g}" if name in TARGET_MAXIMUMS else ""


def _format_target_mark(met: bool | None) -> str:
    return {None: "", True: "[green]ok[/]", False: "[red]missed[/]"}[met]


BARE_SPREAD_MAX = 0.2  # all bare runs do the same work; if they differ by more, other processes used the machine


def compute_medians(samples: Mapping[str, Sequence[float]], peaks: Collection[str]) -> dict[str, float]:
    """Return the median of each figure; the maximum for the names in ``peaks``."""
    return {name: max(values) if name in peaks else statistics.median(values) for name, values in samples.items()}


def compute_spread(values: Sequence[float]) -> float:
    """Return (max - min) ÷ median of repeated measurements."""
    return (max(values) - min(values)) / statistics.median(values)


def describe_spread(spread: float) -> str | None:
    """Return a warning if the measurements are too noisy for reliable ratios."""
    if spread <= BARE_SPREAD_MAX:
        return None
    return "The machine was not quiet: the bare runs differ too much. Do not rely on these ratios."


def build_result(
    ratios: Mapping[str, float], found: Mapping[str, float], used: dict[str, Any], server: dict[str, str], is_own: bool
) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    return {
        "ratios": {name: round(value, 3) for name, value in sorted(ratios.items())},
        "figures": {name: round_figure(value) for name, value in sorted(found.items())},
        "versions": collect_versions(server),
        "settings": used | describe_machine(is_own=is_own) | server,
    }
