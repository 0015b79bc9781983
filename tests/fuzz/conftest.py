"""Writes the examples and failures of each target to the file that `scripts/fuzz` names."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from fuzz.targets import examples_by_target, get_target_name

FUZZ_FOLDER = Path(__file__).parent
failures_by_target: Counter[str] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the targets out of `make test`: some of them take minutes."""
    for item in items:
        if FUZZ_FOLDER in item.path.parents:
            item.add_marker("full")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        failures_by_target[get_target_name(report.nodeid)] += 1


def pytest_sessionfinish() -> None:
    if path := os.environ.get("FUZZ_REPORT"):
        Path(path).write_text(json.dumps({"examples": examples_by_target, "failures": failures_by_target}))
