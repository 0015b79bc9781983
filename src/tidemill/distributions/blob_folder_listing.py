"""Lists a folder of the blob store once for all processes of a machine, and large folders in parallel parts."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from io import BytesIO
from itertools import pairwise, takewhile
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from tidemill.core.private_files import make_private_folder, open_private_file
from tidemill.files.blobs.blob_store import BlobStore, try_lock_file

LISTING_FRESH_S = 5.0
LISTING_PARTS = 4
LISTING_SPLIT_MIN_NAMES = 64  # requested names; a folder with this many is probably large
LISTING_LOCK_TIMEOUT_S = 10.0  # to wait while another process lists the folder
LISTING_LOCK_POLL_S = 0.02


class BlobFolderListing(msgspec.Struct, frozen=True):
    """The names in a folder. Times are from the monotonic clock of the machine, which a reboot resets."""

    names: frozenset[str]
    made_at: float
    good_until: float

    @property
    def is_fresh(self) -> bool:
        return self.made_at <= time.monotonic() < self.good_until


def get_recent_or_list_folder(blobs: BlobStore, folder: str, requested_names: Sequence[str]) -> BlobFolderListing:
    """List a folder; the result may be a few seconds old. ``requested_names`` determine how to split a large folder."""
    digest = sha256(f"{blobs.url('x')}\n{folder}".encode()).hexdigest()[:32]
    with _open_locked_listing_file(blobs.scratch_folder / f"{digest}.listing.tmp") as file:
        listing = _load_fresh_listing(file)
        if listing is None:
            listing = _list_in_parts(blobs, folder, requested_names)
            with suppress(OSError):  # such as a full disk; other processes then list the folder themselves
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
    """Choose names that split the requested names, and so a large folder, into parts of about the same size."""
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


def _load_fresh_listing(file: BinaryIO) -> BlobFolderListing | None:
    file.seek(0)
    try:
        listing = msgspec.msgpack.decode(file.read(), type=BlobFolderListing)
    except msgspec.DecodeError:  # empty, or incomplete because its writer was killed
        return None
    return listing if listing.is_fresh else None


@contextmanager
def _open_locked_listing_file(path: Path) -> Iterator[BinaryIO]:
    """Open and lock the file; after the timeout, yield a buffer in memory instead."""
    deadline = time.monotonic() + LISTING_LOCK_TIMEOUT_S
    make_private_folder(path.parent)
    with cast("BinaryIO", open_private_file(path, "a+b")) as file:
        while not try_lock_file(file):
            if time.monotonic() > deadline:
                yield BytesIO()
                return
            time.sleep(LISTING_LOCK_POLL_S)
        yield file
