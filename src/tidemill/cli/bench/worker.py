"""A worker of its own process, as `tidemill worker` starts it, watched from outside."""

import asyncio
import os
import subprocess
import sys
from typing import Self

import psutil

from tidemill.cli.bench.mill import REFERENCE
from tidemill.config import Settings
from tidemill.domain.errors import TidemillError

MAIN = "from tidemill.cli.main import main; main()"
STOP_S = 30.0
MB = 1024 * 1024


class BenchWorker:
    """Started and stopped; in between, ``look`` keeps the peak memory of the parent and of its children."""

    def __init__(self, settings: Settings, processes: int) -> None:
        self.processes = processes
        self.parent_rss_mb = self.child_rss_mb = 0.0
        url = str(settings.database_url)
        ours = {"DATABASE_URL": url, "TIDEMILL_DATABASE_URL": url, "TIDEMILL_HOME": str(settings.home)}
        self._env = {"TIDEMILL_LOG_LEVEL": "error"} | os.environ | ours

    async def __aenter__(self) -> Self:
        argv = [sys.executable, "-c", MAIN, "worker", REFERENCE, "--processes", str(self.processes)]
        self._process = subprocess.Popen(argv, env=self._env, stdin=subprocess.DEVNULL)  # noqa: ASYNC220, S603  our own argv
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def cpu_seconds(self) -> float:
        """What the children have used of the processors so far, themselves and not the database for them."""
        return sum(sum(child.cpu_times()[:2]) for child in psutil.Process(self._process.pid).children())

    def look(self) -> None:
        """Take a sample; TidemillError when the worker is no more."""
        if self._process.poll() is not None:
            raise TidemillError(f"the worker ended with exit code {self._process.returncode}; its message is above")
        parent = psutil.Process(self._process.pid)
        self.parent_rss_mb = max(self.parent_rss_mb, _rss_mb(parent))
        for child in parent.children():
            self.child_rss_mb = max(self.child_rss_mb, _rss_mb(child))


def _rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / MB
    except psutil.NoSuchProcess:
        return 0.0
