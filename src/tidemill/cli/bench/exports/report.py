"""From samples to ratios."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.exports.plan import Plan
from tidemill.cli.bench.figures import medians, not_quiet, result, spread
from tidemill.config import Settings

PEAKS = ("rss_mb", "service_rss_mb", "worker_rss_mb", "distribution_rss_mb")
RATIOS = {
    "csv_stream_vs_copy": ("copy_to_reader_s", "csv_stream_s"),
    "csv_file_vs_copy": ("copy_to_file_s", "csv_file_s"),
    "ndjson_vs_copy": ("ndjson_copy_s", "ndjson_stream_s"),
    "parquet_vs_copy": ("copy_to_file_s", "parquet_s"),
    "xlsx_vs_xlsxwriter": ("xlsxwriter_s", "xlsx_s"),
    "files_vs_obstore": ("obstore_s", "files_s"),
}
RATES = ("copy_to_reader", "copy_to_file", "csv_stream", "csv_file", "ndjson_copy", "ndjson_stream", "parquet")
BOOK_RATES = ("xlsx", "xlsxwriter")
FILE_RATES = ("files", "obstore", "reused")


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    found = figures(plan, samples)
    used: dict[str, Any] = {name: getattr(plan, name) for name in Plan.__slots__}
    if "xlsxwriter_s" not in samples:
        used["xlsx_vs_xlsxwriter"] = "not measured: XlsxWriter is not installed"
    if "files_s" not in samples:
        used["files_vs_obstore"] = used["reused_per_s"] = "not measured: rclone is not installed"
    return result(ratios(found), found, used, server, is_own)


def ratios(found: Mapping[str, float]) -> dict[str, float]:
    """How much of its speed is kept: the seconds of the one we are compared with ÷ ours."""
    return {name: found[bare] / found[ours] for name, (bare, ours) in RATIOS.items() if bare in found}


def figures(plan: Plan, samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    found = medians(samples, PEAKS)
    found["rss_mb"] = max(found["service_rss_mb"], found["worker_rss_mb"])
    found["copy_spread"] = spread(samples["copy_to_reader_s"])
    for names, rows in ((RATES, plan.users), (BOOK_RATES, plan.book_rows), (FILE_RATES, plan.inputs)):
        found |= {f"{name}_per_s": rows / found[f"{name}_s"] for name in names if f"{name}_s" in found}
    return found


def warning(found: Mapping[str, float]) -> str | None:
    return not_quiet(found["copy_spread"])
