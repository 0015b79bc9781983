"""Uploads the files of distributions, and checks whether earlier files still exist in the blob store."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from io import BytesIO
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import msgspec

from tidemill.core.coalescers import Coalescer
from tidemill.core.file_format import OutputFileSpec
from tidemill.core.private_files import make_private_folder, open_private_file
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, DownloadLabel, try_lock_file
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers.byte_output import CopyEncoder

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


T = TypeVar("T")


class ArtifactUpload:
    """Writes one file in threads, chunk by chunk. It buffers the last chunk, so that a small file needs one request.

    A finished file stays even if the caller is cancelled: every attempt of an input writes the same file.
    """

    def __init__(self, blobs: BlobStore, name: str, form: OutputFileSpec, threads: ThreadPoolExecutor) -> None:
        self.form = form
        self._blobs = blobs
        self._name = name
        self._threads = threads
        self._buffer = b""
        self._writing: BlobWriter | None = None
        self._encoder: CopyEncoder | None = None
        self._running: Future[Any] | None = None
        self._is_complete = False

    async def write(self, chunk: bytes) -> None:
        held, self._buffer = self._buffer, chunk
        if held:
            await self.run_in_thread(lambda: self._open_writer_and_encode_chunk(held))

    async def finish(self) -> Blob:
        if self._writing is None and self.form.is_raw_copy:
            sent = await self._blobs.upload_in_one_request_if_supported(
                self._name, self._buffer, self._build_download_label()
            )
            if sent is not None:
                return sent
        return await self.run_in_thread(self._finish_sync)

    async def abandon(self) -> None:
        """Remove an unfinished file."""
        await asyncio.shield(asyncio.wrap_future(self._threads.submit(self._discard_unfinished_sync)))

    def write_sync(self, chunk: bytes) -> None:
        """Like ``write``, for a caller that runs in a thread."""
        held, self._buffer = self._buffer, chunk
        if held:
            self._open_writer_and_encode_chunk(held)

    def _finish_sync(self) -> Blob:
        writing, encoder = self._open_writer_and_encode_chunk(self._buffer)
        encoder.close()
        blob = writing.finish()
        self._is_complete = True
        return blob

    def _open_writer_and_encode_chunk(self, chunk: bytes) -> tuple[BlobWriter, CopyEncoder]:
        if self._writing is None or self._encoder is None:
            self._writing = self._blobs.open_writer(self._name)
            self._writing.label = self._build_download_label()
            self._encoder = open_copy_encoder(self.form, self._writing)
        if chunk:
            self._encoder.write(chunk)
        return self._writing, self._encoder

    def _build_download_label(self) -> DownloadLabel:
        return DownloadLabel(self._name.rpartition("/")[2], self.form.content_type)

    def _discard_unfinished_sync(self) -> None:
        if self._running is not None and not self._running.cancel():
            wait([self._running])
        if self._writing is not None and not self._is_complete:
            self._writing.discard()
            if self._encoder is not None:
                with suppress(Exception):  # otherwise the garbage collector closes it, and it writes more
                    self._encoder.close()

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run a function in a thread. ``abandon`` waits for it."""
        future = self._running = self._threads.submit(work)
        return await asyncio.wrap_future(future)


LISTING_MIN_NAMES = 8  # with fewer files of a folder in one lookup, each file is checked separately
FOLDER_LISTINGS_CACHED_MAX = 16


class BlobExistenceCache:
    """Checks whether files exist. Caches folder listings for seconds, so it may report a removed file as existing."""

    def __init__(self, blobs: BlobStore, threads: Executor) -> None:
        self._blobs = blobs
        self._threads = threads
        self._listings: dict[str, BlobFolderListing] = {}
        self._lookups: Coalescer[str, bool] = Coalescer(self._check_names_exist)

    async def exists(self, name: str) -> bool:
        listing = self._get_fresh_listing(_get_parent_folder(name))
        return (listing is not None and name in listing.names) or await self._lookups.get(name)

    async def _check_names_exist(self, names: Sequence[str]) -> list[bool]:
        by_folder: dict[str, list[str]] = defaultdict(list)
        for name in names:
            by_folder[_get_parent_folder(name)].append(name)
        checks = (self._find_existing_in_folder(folder, folder_names) for folder, folder_names in by_folder.items())
        existing = set[str]().union(*await asyncio.gather(*checks))
        return [name in existing for name in names]

    async def _find_existing_in_folder(self, folder: str, names: list[str]) -> set[str]:
        if len(names) >= LISTING_MIN_NAMES and self._get_fresh_listing(folder) is None:
            self._cache_listing(
                folder, await self._run_in_thread(partial(get_recent_or_list_folder, self._blobs, folder, names))
            )
        listing = self._get_fresh_listing(folder)
        known = listing.names if listing is not None else frozenset()
        # A file that is not in the listing may be newer than the listing.
        others = [name for name in names if name not in known]
        answers = await asyncio.gather(*(self._run_in_thread(partial(self._blobs.has, name)) for name in others))
        return {*known.intersection(names)} | {name for name, is_here in zip(others, answers, strict=True) if is_here}

    def _get_fresh_listing(self, folder: str) -> BlobFolderListing | None:
        listing = self._listings.get(folder)
        return listing if listing is not None and listing.is_fresh else None

    def _cache_listing(self, folder: str, listing: BlobFolderListing) -> None:
        self._listings.pop(folder, None)
        self._listings[folder] = listing
        while len(self._listings) > FOLDER_LISTINGS_CACHED_MAX:
            del self._listings[next(iter(self._listings))]

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _get_parent_folder(name: str) -> str:
    return name.rpartition("/")[0]
