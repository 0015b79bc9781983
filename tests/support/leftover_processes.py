"""Ends the processes that a killed test process leaves behind.

When a test hangs, its process exits (``faulthandler_exit_on_timeout``) and leaves its servers and workers running. They
have inherited two environment variables of pytest-xdist, by which the process that controls the run finds them.
"""

import contextlib
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest

from tidemill.testing.throwaway_postgres import MEMORY_FOLDER

RUN, WORKER = "PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER"
EXIT_TIMEOUT_S = 5.0
crashed_runs = pytest.StashKey[set[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """If a test process crashed, end the processes that it started, except servers that it shares with others."""
    if error:
        run = node.workerinput["testrunuid"]
        node.config.stash.setdefault(crashed_runs, set()).add(run)
        end_processes({RUN: run, WORKER: node.workerinput["workerid"]})


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """End shared servers, because a crashed process has not released them."""
    for run in config.stash.get(crashed_runs, set()):
        end_processes({RUN: run})


def end_processes(variables: dict[str, str]) -> None:
    """End all processes with these environment variables, and remove the temporary folders that they work in."""
    found = [process for process in psutil.process_iter() if _has_environment(process, variables)]
    folders = {folder for process in found if (folder := _find_temporary_folder(process))}
    for process in found:
        with contextlib.suppress(psutil.Error):
            # PostgreSQL removes its shared memory when it gets SIGQUIT.
            process.send_signal(signal.SIGQUIT if process.name() == "postgres" else signal.SIGKILL)
    for process in psutil.wait_procs(found, EXIT_TIMEOUT_S)[1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _has_environment(process: psutil.Process, variables: dict[str, str]) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        found: dict[str, str] = process.environ()
    except (psutil.Error, OSError):
        return False
    return variables.items() <= found.items()


def _find_temporary_folder(process: psutil.Process) -> Path | None:
    try:
        folder = Path(process.cwd())
    except (psutil.Error, OSError):
        return None
    tops = (MEMORY_FOLDER, Path(tempfile.gettempdir()))
    mine = (path for path in (folder, *folder.parents) if path.parent in tops and path.name.startswith("tidemill-"))
    return next(mine, None)
