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

from tidemill.files.blobs.blob_store import BlobStore, try_lock_file

LISTING_FRESH_S = 5.0
LISTING_PARTS = 4
LISTING_SPLIT_MIN_NAMES = 64  # names that are looked for: who asks for so many has a large folder
LISTING_LOCK_TIMEOUT_S = 10.0  # with another process that lists it now
LISTING_LOCK_POLL_S = 0.02


class BlobFolderListing(msgspec.Struct, frozen=True):
    """Believed between two moments of this machine, which counts anew when it is restarted."""

    names: frozenset[str]
    made_at: float
    good_until: float

    @property
    def is_fresh(self) -> bool:
        return self.made_at <= time.monotonic() < self.good_until


def list_blob_folder(blobs: BlobStore, folder: str, requested_names: Sequence[str]) -> BlobFolderListing:
    """As another process has found it a moment ago, or as it is now. ``asked`` are some of the names, anyhow."""
    place = sha256(f"{blobs.url('x')}\n{folder}".encode()).hexdigest()[:32]
    with _lock_listing_file(blobs.scratch_folder / f"{place}.listing.tmp") as file:
        listing = _load_listing(file)
        if listing is None:
            listing = _list_in_parts(blobs, folder, requested_names)
            with suppress(OSError):  # a full disk: others list it, too
                _save_listing(file, listing)
    return listing


def _list_in_parts(blobs: BlobStore, folder: str, requested_names: Sequence[str]) -> BlobFolderListing:
    started = time.monotonic()
    bounds = ["", *_choose_split_names(requested_names), ""]
    with ThreadPoolExecutor(len(bounds) - 1) as threads:
        parts = threads.map(lambda ends: _list_part(blobs, folder, *ends), pairwise(bounds))
        names = frozenset[str]().union(*parts)
    now = time.monotonic()
    return BlobFolderListing(names, now, now + max(LISTING_FRESH_S, 2 * (now - started)))


def _choose_split_names(requested_names: Sequence[str]) -> list[str]:
    """Where a large folder is cut: what is looked for is about as spread as what is there."""
    if len(requested_names) < LISTING_SPLIT_MIN_NAMES:
        return []
    ordered = sorted(requested_names)
    return [ordered[len(ordered) * part // LISTING_PARTS] for part in range(1, LISTING_PARTS)]


def _list_part(blobs: BlobStore, folder: str, after: str, until: str) -> frozenset[str]:
    names = blobs.list_names(folder, after=after)
    return frozenset(takewhile(lambda name: name <= until, names) if until else names)


def _save_listing(file: BinaryIO, listing: BlobFolderListing) -> None:
    file.seek(0)
    file.truncate()
    file.write(msgspec.msgpack.encode(listing))
    file.flush()


def _load_listing(file: BinaryIO) -> BlobFolderListing | None:
    file.seek(0)
    try:
        listing = msgspec.msgpack.decode(file.read(), type=BlobFolderListing)
    except msgspec.DecodeError:  # nothing yet, or half of it: whoever wrote it was killed
        return None
    return listing if listing.is_fresh else None


@contextmanager
def _lock_listing_file(path: Path) -> Iterator[BinaryIO]:
    """The file, for us alone; if somebody has it for too long, one that nobody else sees."""
    deadline = time.monotonic() + LISTING_LOCK_TIMEOUT_S
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        while not try_lock_file(file):
            if time.monotonic() > deadline:
                yield BytesIO()
                return
            time.sleep(LISTING_LOCK_POLL_S)
        yield file
