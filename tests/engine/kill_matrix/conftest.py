"""Prints the table of the kill matrix after a run: each failpoint and action with its result and seconds."""

import re
from collections import defaultdict
from typing import Any

import pytest

from tidemill.failpoints import Action

CASE_ID = re.compile(r"\[([a-z_]+)-([a-z_.]+)-([a-z-]+)\]$")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table if the run had the whole matrix, which `make kill-matrix` runs."""
    if not config.getoption("--kill-matrix-table", default=False):
        return
    cells: dict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for outcome, shown in (("passed", "ok"), ("failed", "FAILED")):
        for report in terminalreporter.getreports(outcome):
            found = CASE_ID.search(report.nodeid)
            if found is not None and report.when == "call":
                scenario, point, action = found.groups()
                cells[point, scenario][action] = f"{shown} {report.duration:.1f}"
    line = "{:34}{:16}" + "{:>14}" * len(Action)
    terminalreporter.section("kill matrix: result and seconds")
    terminalreporter.write_line(line.format("failpoint", "scenario", *Action))
    for (point, scenario), results in sorted(cells.items()):
        terminalreporter.write_line(line.format(point, scenario, *(results.get(action, "-") for action in Action)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kill-matrix-table", action="store_true", help="Print the table of the kill matrix")
