"""Run `tidemill worker` and `tidemill serve` as separate processes, and measure their memory and processor time."""

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Self

import psutil

from tidemill.config import Settings
from tidemill.core.errors import TidemillError
from tidemill_bench.mill import BENCH_MILL_REFERENCE

TIDEMILL_MAIN_CODE = "from tidemill.cli.main import main; main()"
PROCESS_STOP_TIMEOUT_S = 30.0
BYTES_PER_MB = 1024 * 1024
NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class BenchProcess:
    """A `tidemill` command that uses the database and the blob store of the benchmark."""

    def __init__(
        self, settings: Settings, *arguments: str, stderr: IO[bytes] | None = None, **environment: str
    ) -> None:
        self._arguments = arguments
        self._stderr = stderr
        url = str(settings.database_url)
        variables = {"DATABASE_URL": url, "TIDEMILL_DATABASE_URL": url, "TIDEMILL_HOME": str(settings.home)}
        variables["TIDEMILL_BLOBS"] = settings.blobs
        if settings.config is not None:
            variables["TIDEMILL_CONFIG"] = str(settings.config)
        self._env = os.environ | variables | environment

    async def __aenter__(self) -> Self:
        argv = [sys.executable, "-c", TIDEMILL_MAIN_CODE, *self._arguments]
        self._process = subprocess.Popen(  # noqa: ASYNC220  the arguments are trusted
            argv, env=self._env, stdin=subprocess.DEVNULL, stderr=self._stderr
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, PROCESS_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        """The process; raises TidemillError after it has exited."""
        if not self.is_alive:
            name, code = self._arguments[0], self._process.returncode
            raise TidemillError(f"`tidemill {name}` exited with code {code}. Its error message is above.")
        return psutil.Process(self._process.pid)


def read_rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / BYTES_PER_MB
    except psutil.NoSuchProcess:
        return 0.0


def read_cpu_seconds(process: psutil.Process) -> float:
    """Return the processor time of the process so far, without the time of the database server."""
    return float(sum(process.cpu_times()[:2]))


class BenchWorker(BenchProcess):
    """A worker. ``sample_memory`` records the peak memory of the parent and of its child processes."""

    def __init__(self, settings: Settings, processes: int, environment: Mapping[str, str] = NO_ENVIRONMENT) -> None:
        level = os.environ.get("TIDEMILL_LOG_LEVEL", "error")
        super().__init__(
            settings, "worker", BENCH_MILL_REFERENCE, "--processes", str(processes), TIDEMILL_LOG_LEVEL=level
        )
        self._env |= environment
        self.parent_rss_mb = self.child_rss_mb = 0.0

    def cpu_seconds(self) -> float:
        """Return the total processor time of the child processes."""
        return sum(read_cpu_seconds(child) for child in self.process.children())

    def sample_memory(self) -> None:
        """Take a sample; raise TidemillError if the worker has exited."""
        parent = self.process
        self.parent_rss_mb = max(self.parent_rss_mb, read_rss_mb(parent))
        for child in parent.children():
            self.child_rss_mb = max(self.child_rss_mb, read_rss_mb(child))


SERVER_START_TIMEOUT_S = 120.0
SERVER_LOG_POLL_S = 0.05
MEMORY_SAMPLE_INTERVAL_S = 0.1
_LISTENING_PATTERN = re.compile(rb"Listening at http://(\S+):(\d+)")


class BenchServer(BenchProcess):
    """The HTTP server. ``place`` is the address it listens on. It writes its usual log to a file."""

    def __init__(
        self,
        settings: Settings,
        log: Path,
        *,
        max_file_size_mb: int | None = None,
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        mill: str | None = None,
    ) -> None:
        """``mill``: the reference to a mill whose items the server runs on kickoff requests."""
        self._log = log
        self._file = log.open("wb")
        reference = [] if mill is None else [mill]
        super().__init__(settings, "serve", *reference, "--host", "127.0.0.1", "--port", "0", stderr=self._file)
        self._env |= {"TIDEMILL_MAX_FILE_SIZE_MB": str(max_file_size_mb or settings.max_file_size_mb)}
        self._env |= environment

    async def __aenter__(self) -> Self:
        with self._file:
            await super().__aenter__()
        try:
            self.place = await self._wait_until_listening()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    def rss_mb(self) -> float:
        return read_rss_mb(self.process)

    def cpu_seconds(self) -> float:
        return read_cpu_seconds(self.process)

    async def peak_rss_mb(self, during: "asyncio.Task[object]") -> float:
        """Return the peak memory of the server while a task runs."""
        peak = self.rss_mb()
        while not during.done():
            await asyncio.wait([during], timeout=MEMORY_SAMPLE_INTERVAL_S)
            peak = max(peak, self.rss_mb())
        return peak

    async def _wait_until_listening(self) -> tuple[str, int]:
        deadline = time.monotonic() + SERVER_START_TIMEOUT_S
        while True:
            output = self._log.read_bytes()
            found = _LISTENING_PATTERN.search(output)
            if found:
                return found[1].decode(), int(found[2])
            if not self.is_alive or time.monotonic() > deadline:
                raise TidemillError(f"The server did not start: {output.decode(errors='replace').strip()}")
            await asyncio.sleep(SERVER_LOG_POLL_S)
