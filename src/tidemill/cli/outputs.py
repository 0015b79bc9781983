"""Files that a command writes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemill.domain.errors import InvalidInput


@contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Under another name until it is whole: who looks for it finds all of it, or what was there before.

    A link leads to the file that is meant; a pipe or a device is written as it comes. InvalidInput if it cannot be.
    """
    path = path.resolve()
    with _in_our_words(path):
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
def standard_output() -> Iterator[BinaryIO]:
    with _in_our_words("standard output"):
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def expect_to_write(path: Path | None) -> None:
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
def _in_our_words(where: object) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:  # whoever read it has enough
        raise
    except OSError as error:
        raise InvalidInput(f"{where} cannot be written: {error.strerror or error}") from error
