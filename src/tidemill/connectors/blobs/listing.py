"""What is in a folder of a store: listed once for all processes of this machine, and in parts at the same time."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from itertools import pairwise, takewhile
from pathlib import Path
from typing import BinaryIO

import msgspec

from tidemill.connectors.blobs.base import Blobs
from tidemill.connectors.locks import is_ours

FRESH_S = 5.0
PARTS = 4
WORTH_PARTS = 64  # names that are looked for: who asks for so many has a large folder
PATIENCE_S = 10.0  # with another process that lists it now
LOOK_S = 0.02


class Listing(msgspec.Struct, frozen=True):
    """Believed between two moments of this machine, which counts anew when it is restarted."""

    names: frozenset[str]
    made_at: float
    good_until: float

    @property
    def is_good(self) -> bool:
        return self.made_at <= time.monotonic() < self.good_until


def list_folder(blobs: Blobs, folder: str, asked: Sequence[str]) -> Listing:
    """As another process has found it a moment ago, or as it is now. ``asked`` are some of the names, anyhow."""
    place = sha256(f"{blobs.url('x')}\n{folder}".encode()).hexdigest()[:32]
    with _alone(blobs.scratch / f"{place}.listing.tmp") as file:
        listing = _kept(file)
        if listing is None:
            listing = _list(blobs, folder, asked)
            with suppress(OSError):  # a full disk: others list it, too
                _keep(file, listing)
    return listing


def _list(blobs: Blobs, folder: str, asked: Sequence[str]) -> Listing:
    started = time.monotonic()
    bounds = ["", *_cuts(asked), ""]
    with ThreadPoolExecutor(len(bounds) - 1) as threads:
        parts = threads.map(lambda ends: _part(blobs, folder, *ends), pairwise(bounds))
        names = frozenset[str]().union(*parts)
    now = time.monotonic()
    return Listing(names, now, now + max(FRESH_S, 2 * (now - started)))


def _cuts(asked: Sequence[str]) -> list[str]:
    """Where a large folder is cut: what is looked for is about as spread as what is there."""
    if len(asked) < WORTH_PARTS:
        return []
    ordered = sorted(asked)
    return [ordered[len(ordered) * part // PARTS] for part in range(1, PARTS)]


def _part(blobs: Blobs, folder: str, after: str, until: str) -> frozenset[str]:
    names = blobs.list_names(folder, after=after)
    return frozenset(takewhile(lambda name: name <= until, names) if until else names)


def _keep(file: BinaryIO, listing: Listing) -> None:
    file.seek(0)
    file.truncate()
    file.write(msgspec.msgpack.encode(listing))
    file.flush()


def _kept(file: BinaryIO) -> Listing | None:
    file.seek(0)
    try:
        listing = msgspec.msgpack.decode(file.read(), type=Listing)
    except msgspec.DecodeError:  # nothing yet, or half of it: whoever wrote it was killed
        return None
    return listing if listing.is_good else None


@contextmanager
def _alone(path: Path) -> Iterator[BinaryIO]:
    """The file, for us alone; if somebody has it for too long, one that nobody else sees."""
    deadline = time.monotonic() + PATIENCE_S
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        while not is_ours(file):
            if time.monotonic() > deadline:
                yield BytesIO()
                return
            time.sleep(LOOK_S)
        yield file
