"""Output files of commands, and standard input as a stream of chunks."""

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemill.core.errors import Interrupted, InvalidInput


@contextmanager
def open_atomic_output(path: Path) -> Iterator[BinaryIO]:
    """Write a file under a temporary name and rename it when it is complete.

    Symbolic links are followed. A pipe or a device is written directly.

    Raises:
        InvalidInput: The file cannot be written.
    """
    path = path.resolve()
    with _translate_write_errors(f'"{path}"'):
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
            return
        temporary = path.with_name(f".{path.name}.{uuid4().hex[:8]}.tmp")
        try:
            with temporary.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextmanager
def open_standard_output() -> Iterator[BinaryIO]:
    with _translate_write_errors("standard output"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def check_output_path(path: Path | None) -> None:
    """Raise InvalidInput if a file cannot be written. Call it before the work starts."""
    if path is None:
        return
    if path.is_dir():
        raise InvalidInput(f'Cannot write "{path}": it is a folder')
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInput(f'Cannot write "{path}": folder "{folder}" does not exist')
    if not os.access(folder, os.W_OK) and not path.exists():
        raise InvalidInput(f'Cannot write "{path}": folder "{folder}" is read-only')


@contextmanager
def _translate_write_errors(where: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # the reader closed the pipe
        raise
    except OSError as error:
        raise InvalidInput(f"Cannot write {where}: {error.strerror or error}") from error


STDIN_PATHS = ("-", "/dev/stdin")  # over ssh, /dev/stdin is a socket and cannot be opened
STDIN_CHUNK_BYTES = 1 << 20
STDIN_POLL_S = 0.2


@contextmanager
def open_stdin_chunks() -> Iterator[Iterator[bytes]]:
    """Yield the chunks of standard input. Polling lets the reading thread stop when the block ends."""
    if sys.stdin is None:
        raise InvalidInput("Standard input is not available")
    stopped = threading.Event()
    try:
        yield _read_stdin_chunks(sys.stdin.fileno(), stopped)
    finally:
        stopped.set()


def _read_stdin_chunks(file: int, stopped: threading.Event) -> Iterator[bytes]:
    while not stopped.is_set():
        if select.select([file], [], [], STDIN_POLL_S)[0]:
            chunk = os.read(file, STDIN_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk
    raise Interrupted("Reading standard input was cancelled")
