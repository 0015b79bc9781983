"""From samples to ratios."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tidemill.cli.bench.conditions import machine, versions
from tidemill.cli.bench.imports.plan import Plan
from tidemill.cli.bench.targets import rounded

STEADY = 0.2


def report(
    plan: Plan, samples: Mapping[str, Sequence[float]], server: dict[str, str], *, is_own: bool
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
    used = {name: getattr(plan, name) for name in Plan.__slots__} | machine(is_own=is_own)
    return {
        "ratios": {name: round(value, 3) for name, value in ratios.items()},
        "figures": {name: rounded(value) for name, value in sorted(found.items())},
        "versions": versions(server),
        "settings": used | server,
    }


def figures(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each, but of memory and of first rows the greatest."""
    found = {
        name: max(values) if name == "import_rss_mb" or name.endswith("first_row_s") else statistics.median(values)
        for name, values in samples.items()
    }
    copies = samples["copy_s"]
    return found | {"copy_spread": (max(copies) - min(copies)) / statistics.median(copies)}


def warning(found: Mapping[str, float]) -> str | None:
    if found["copy_spread"] <= STEADY:
        return None
    return "The machine was not quiet: the bare turns differ too much to trust these ratios."
