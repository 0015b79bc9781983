"""Files that a command writes, and standard input as a stream of chunks."""

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
    """Under another name until it is whole: who looks for it finds all of it, or what was there before.

    A link leads to the file that is meant; a pipe or a device is written as it comes. InvalidInput if it cannot be.
    """
    path = path.resolve()
    with _translate_write_errors(path):
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
    """Said before the work begins, not after it."""
    if path is None:
        return
    if path.is_dir():
        raise InvalidInput(f"{path} cannot be written: it is a folder")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise InvalidInput(f"{path} cannot be written: there is no folder {folder}")
    if not os.access(folder, os.W_OK) and not path.exists():
        raise InvalidInput(f"{path} cannot be written: folder {folder} is read-only")


@contextmanager
def _translate_write_errors(where: object) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # whoever read it has enough
        raise
    except OSError as error:
        raise InvalidInput(f"{where} cannot be written: {error.strerror or error}") from error


STDIN_PATHS = ("-", "/dev/stdin")  # the latter cannot be opened when it came over ssh: then it is a socket
STDIN_CHUNK_BYTES = 1 << 20
STDIN_POLL_S = 0.2


@contextmanager
def open_standard_input() -> Iterator[Iterator[bytes]]:
    """Who leaves the block is not held by a terminal or a pipe that says nothing: a thread in a read is."""
    if sys.stdin is None:
        raise InvalidInput("there is no standard input")
    gone = threading.Event()
    try:
        yield _read_stdin_chunks(sys.stdin.fileno(), gone)
    finally:
        gone.set()


def _read_stdin_chunks(file: int, gone: threading.Event) -> Iterator[bytes]:
    while not gone.is_set():
        if select.select([file], [], [], STDIN_POLL_S)[0]:
            piece = os.read(file, STDIN_CHUNK_BYTES)
            if not piece:
                return
            yield piece
    raise Interrupted("nobody waits for standard input any more")
