"""A process of its own, as somebody starts it at a terminal, watched from outside."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import IO, Self

import psutil

from tidemill.config import Settings
from tidemill.domain.errors import TidemillError

MAIN = "from tidemill.cli.main import main; main()"
STOP_S = 30.0
MB = 1024 * 1024
NOTHING: Mapping[str, str] = MappingProxyType({})


class BenchProcess:
    """`tidemill` with some arguments, on the database and the files that are measured."""

    def __init__(self, settings: Settings, *arguments: str, said: IO[bytes] | None = None, **environment: str) -> None:
        self._arguments = arguments
        self._said = said
        url = str(settings.database_url)
        ours = {"DATABASE_URL": url, "TIDEMILL_DATABASE_URL": url, "TIDEMILL_HOME": str(settings.home)}
        ours["TIDEMILL_BLOBS"] = settings.blobs
        if settings.config is not None:
            ours["TIDEMILL_CONFIG"] = str(settings.config)
        self._env = os.environ | ours | environment

    async def __aenter__(self) -> Self:
        argv = [sys.executable, "-c", MAIN, *self._arguments]
        self._process = subprocess.Popen(  # noqa: ASYNC220, S603  our own argv
            argv, env=self._env, stdin=subprocess.DEVNULL, stderr=self._said
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def process(self) -> psutil.Process:
        """As the system sees it; TidemillError when it is no more."""
        if not self.is_alive:
            name, code = self._arguments[0], self._process.returncode
            raise TidemillError(f"the process of `tidemill {name}` ended with exit code {code}; its message is above")
        return psutil.Process(self._process.pid)


def rss_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / MB
    except psutil.NoSuchProcess:
        return 0.0


def cpu_seconds(process: psutil.Process) -> float:
    """What it has used of the processors so far, itself and not the database for it."""
    return float(sum(process.cpu_times()[:2]))
