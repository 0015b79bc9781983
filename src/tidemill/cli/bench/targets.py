"""What is asked of the numbers, and how they look."""

from typing import Any

from rich.table import Table

from tidemill.cli.views import console

ENGINE_AT_LEAST = {"ingest_vs_copy": 0.5, "process_vs_bare": 0.5}
EXPORT_AT_LEAST = {
    "csv_stream_vs_copy": 0.8,
    "csv_file_vs_copy": 0.8,
    "ndjson_vs_copy": 0.9,
    "parquet_vs_copy": 0.3,
    "xlsx_vs_xlsxwriter": 3,
    "files_vs_obstore": 0.5,
    "reused_per_s": 5_000,
}
DISPATCH_AT_LEAST = {"redis_vs_postgres": 0.8, "rabbitmq_vs_postgres": 0.8}
AT_LEAST = ENGINE_AT_LEAST | EXPORT_AT_LEAST | DISPATCH_AT_LEAST
ENGINE_AT_MOST = {
    "cost_1m_vs_100k": 1.2,
    "cost_large_vs_small": 1.2,
    "rss_mb": 150,
    "dead_tuples_per_item": 0.01,
    "start_p50_ms": 20,
}
SERVICE_AT_MOST = {
    "page_p99_ms": 25,
    "page_last_vs_first": 2,
    "job_p99_ms": 20,
    "api_p99_ms": 250,
    "api_errors": 0,
    "api_rss_growth_mb": 16,
    "upload_rss_growth_mb": 64,
}
IMPORT_AT_MOST = {
    "import_wall_vs_copy": 2.0,
    "import_ndjson_wall_vs_copy": 2.5,
    "all_bad_vs_all_good": 1.1,
    "first_row_s": 1,
    "import_rss_mb": 200,
}
DISPATCH_AT_MOST = {
    "wake_p50_ms": 20,
    "postgres_wake_p50_ms": 20,
    "redis_wake_p50_ms": 20,
    "rabbitmq_wake_p50_ms": 20,
    "relay_10k_s": 2,
    "limiter_overhead": 0.05,
}
AT_MOST = ENGINE_AT_MOST | SERVICE_AT_MOST | IMPORT_AT_MOST | DISPATCH_AT_MOST


def is_met(name: str, value: float) -> bool | None:
    """Whether a target is reached; None where there is none."""
    if name in AT_LEAST:
        return value >= AT_LEAST[name]
    return value <= AT_MOST[name] if name in AT_MOST else None


def show(result: dict[str, Any], warning: str | None = None) -> None:
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
    if warning is not None:
        console.print(f"[yellow]{warning}[/]")
    for part in ("versions", "settings"):
        console.print(f"[dim]{part}: " + ", ".join(f"{k} {v}" for k, v in result[part].items()), highlight=False)


def rounded(value: float) -> float:
    return round(value) if abs(value) >= 1_000 else float(f"{value:.4g}")  # noqa: PLR2004


def _target(name: str) -> str:
    if name in AT_LEAST:
        return f"≥ {AT_LEAST[name]:g}"
    return f"≤ {AT_MOST[name]:g}" if name in AT_MOST else ""


def _mark(met: bool | None) -> str:
    return {None: "", True: "[green]ok[/]", False: "[red]missed[/]"}[met]
