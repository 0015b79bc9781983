"""A worker of its own process, as `tidemill worker` starts it."""

import os
from collections.abc import Mapping

from tidemill.cli.bench.mill import REFERENCE
from tidemill.cli.bench.process import NOTHING, BenchProcess, cpu_seconds, rss_mb
from tidemill.config import Settings


class BenchWorker(BenchProcess):
    """Started and stopped; in between, ``look`` keeps the peak memory of the parent and of its children."""

    def __init__(self, settings: Settings, processes: int, environment: Mapping[str, str] = NOTHING) -> None:
        level = os.environ.get("TIDEMILL_LOG_LEVEL", "error")
        super().__init__(settings, "worker", REFERENCE, "--processes", str(processes), TIDEMILL_LOG_LEVEL=level)
        self._env |= environment
        self.parent_rss_mb = self.child_rss_mb = 0.0

    def cpu_seconds(self) -> float:
        """Of the children together."""
        return sum(cpu_seconds(child) for child in self.process.children())

    def look(self) -> None:
        """Take a sample; TidemillError when the worker is no more."""
        parent = self.process
        self.parent_rss_mb = max(self.parent_rss_mb, rss_mb(parent))
        for child in parent.children():
            self.child_rss_mb = max(self.child_rss_mb, rss_mb(child))
