"""From samples to ratios."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.figures import medians, not_quiet, result, spread
from tidemill.cli.bench.imports.plan import Plan
from tidemill.config import Settings


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], _: Settings, is_own: bool
) -> dict[str, Any]:
    """The object that ``--json`` prints."""
    found = figures(samples)
    ratios = {
        "import_wall_vs_copy": found["import_s"] / found["copy_s"],
        "import_ndjson_wall_vs_copy": found["ndjson_import_s"] / found["ndjson_copy_s"],
        "all_bad_vs_all_good": found["all_bad_import_s"] / found["all_good_import_s"],
    }
    found |= {
        "copy_rows_per_s": plan.users * 0.99 / found["copy_s"],
        "import_rows_per_s": plan.users / found["import_s"],
        "ndjson_import_rows_per_s": plan.articles / found["ndjson_import_s"],
    }
    return result(ratios, found, {name: getattr(plan, name) for name in Plan.__slots__}, server, is_own)


def figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each, but of memory and of first rows the greatest."""
    peaks = {name for name in samples if name == "import_rss_mb" or name.endswith("first_row_s")}
    return medians(samples, peaks) | {"copy_spread": spread(samples["copy_s"])}


def warning(found: Mapping[str, float]) -> str | None:
    return not_quiet(found["copy_spread"])
