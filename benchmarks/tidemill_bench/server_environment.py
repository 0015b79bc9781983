"""The environment of servers that benchmarks and tests start."""

import os
from pathlib import Path


def server_environment(home: Path) -> dict[str, str]:
    """Return PATH, HOME, and the variables by which a test run finds the processes that it started."""
    kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("PYTEST_XDIST_")}
    return kept | {"HOME": str(home)}
