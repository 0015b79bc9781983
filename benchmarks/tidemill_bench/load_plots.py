"""The plots of the load benchmark: the large job and the soak, from the series of a report."""

from collections.abc import Mapping
from pathlib import Path

from tidemill_bench.svg_plot import Panel, Points, draw_plot

Series = Mapping[str, Points]
JOB_DESCRIPTION = "Items per second and memory of a child process while a large job is processed"
SOAK_DESCRIPTION = "Memory, open files, connections and dead rows during a mix of jobs, imports and exports"


def write_plots(series: Mapping[str, Series], folder: Path) -> list[Path]:
    """Write the plots of the measured series into a folder; return their paths."""
    drawn = {}
    if "job" in series:
        drawn["load-job.svg"] = draw_plot(
            [
                Panel("items per second", {"two processes": series["job"]["items_per_s"]}),
                Panel("memory of a child process, MB", {"peak": series["job"]["rss_mb"]}),
            ],
            JOB_DESCRIPTION,
        )
    if "soak" in series:
        drawn["load-soak.svg"] = draw_plot(_make_soak_panels(series["soak"]), SOAK_DESCRIPTION)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in drawn]
    for path, text in zip(paths, drawn.values(), strict=True):
        path.write_text(text)
    return paths


def _make_soak_panels(soak: Series) -> list[Panel]:
    def select(prefix: str) -> dict[str, Points]:
        return {
            name.removeprefix(prefix).replace("_", " "): points
            for name, points in soak.items()
            if name.startswith(prefix)
        }

    return [
        Panel("resident memory, MB", select("rss_mb_")),
        Panel("open file descriptors", select("fds_")),
        Panel("database connections", {"connections": soak["connections"]}),
        Panel("dead row versions", {"dead rows": soak["dead_tuples"]}),
    ]
