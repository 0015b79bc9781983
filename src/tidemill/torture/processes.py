"""The processes of a run: an API server and workers. A process that ends is started again, as by a service manager."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

EXIT_TIMEOUT_S = 30.0
RESTART_PAUSE_S = 0.3
WATCH_INTERVAL_S = 0.2


class ManagedProcess:
    """A `tidemill` command that is started again whenever it ends."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], logs: Path, working_folder: Path
    ) -> None:
        self.name = name
        self.starts = 0
        self._argv = [sys.executable, "-m", "tidemill", *arguments]
        self._environment = environment
        self._log = logs / f"{name}.log"
        self._working_folder = working_folder
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_at: float | None = None

    @property
    def pid(self) -> int | None:
        """The process id, or None if the process does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        self.starts += 1
        self._ended_at = None
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  no input of a user
                self._argv,
                cwd=self._working_folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def start_if_ended(self) -> None:
        if self.pid is not None:
            return
        now = time.monotonic()
        if self._ended_at is None:
            self._ended_at = now
        elif now - self._ended_at >= RESTART_PAUSE_S:
            self.start()

    def list_child_pids(self) -> list[int]:
        """Return the child processes of the worker, in the order of their start."""
        if self.pid is None:
            return []
        with contextlib.suppress(psutil.Error):
            return sorted(child.pid for child in psutil.Process(self.pid).children())
        return []

    def end(self) -> None:
        """Kill the process and its children, which are in its session."""
        if self._process is None:
            return
        children = self.list_child_pids()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in children:
            send_signal(pid, signal.SIGKILL)
        self._process.wait(EXIT_TIMEOUT_S)


def send_signal(pid: int, number: signal.Signals) -> bool:
    """Send a signal; return whether the process exists."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Fleet:
    """The API server and the workers of a run."""

    def __init__(self, api: ManagedProcess, workers: list[ManagedProcess]) -> None:
        self.api = api
        self.workers = workers

    @property
    def all(self) -> list[ManagedProcess]:
        return [self.api, *self.workers]

    async def keep_running(self) -> None:
        """Start each process that ended, until the task is cancelled."""
        while True:
            for process in self.all:
                process.start_if_ended()
            await asyncio.sleep(WATCH_INTERVAL_S)

    def end(self) -> None:
        for process in self.all:
            process.end()
