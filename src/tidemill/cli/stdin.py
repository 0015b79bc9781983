"""Standard input, as pieces of a file."""

import os
import select
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.connectors.blobs.base import PIECE
from tidemill.domain.errors import Interrupted, InvalidInput

NAMES = ("-", "/dev/stdin")  # the latter cannot be opened when it came over ssh: then it is a socket
WAIT_S = 0.2


@contextmanager
def standard_input() -> Iterator[Iterator[bytes]]:
    """Who leaves the block is not held by a terminal or a pipe that says nothing: a thread in a read is."""
    if sys.stdin is None:
        raise InvalidInput("there is no standard input")
    gone = threading.Event()
    try:
        yield _pieces(sys.stdin.fileno(), gone)
    finally:
        gone.set()


def _pieces(file: int, gone: threading.Event) -> Iterator[bytes]:
    while not gone.is_set():
        if select.select([file], [], [], WAIT_S)[0]:
            piece = os.read(file, PIECE)
            if not piece:
                return
            yield piece
    raise Interrupted("nobody waits for standard input any more")
