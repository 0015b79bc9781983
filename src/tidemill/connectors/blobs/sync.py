"""Files on their way to the disk."""

import os
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

STEP = 16 << 20
_sync = getattr(os, "fdatasync", os.fsync)  # which not every system has


class SyncAhead:
    """Has what is written of a long file brought to the disk meanwhile: at its end there is little left to wait for.

    A disk that fails says so once, to whoever syncs first: what it said is raised by the next call.
    """

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._syncing: Future[None] | None = None
        self._bytes = 0

    def wrote(self, file: BinaryIO, size: int) -> None:
        self._bytes += size
        if self._bytes < STEP or (self._syncing is not None and not self._syncing.done()):
            return
        self._wait()
        self._thread = self._thread or ThreadPoolExecutor(1, "sync")
        self._syncing, self._bytes = self._thread.submit(_sync, file.fileno()), 0

    def end(self) -> None:
        """Until nothing is under way: the file may be closed."""
        try:
            self._wait()
        finally:
            if self._thread is not None:
                self._thread.shutdown()

    def _wait(self) -> None:
        syncing, self._syncing = self._syncing, None
        if syncing is not None:
            syncing.result()


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
