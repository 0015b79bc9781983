"""A bucket of an object store: S3 and what speaks like it, Google Cloud Storage, Azure."""

import hashlib
import io
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

import obstore
from obstore.exceptions import BaseError

from tidemill.connectors.blobs.base import Blob, Blobs, Label
from tidemill.connectors.blobs.client import Limits, Store, in_our_words, open_store
from tidemill.connectors.blobs.object import BucketWriting, ObjectRanges, attributes_of
from tidemill.connectors.blobs.reader import SMALLEST, RangeReader
from tidemill.connectors.blobs.stale import remove_stale
from tidemill.domain.errors import StoreUnavailable, UnknownFile
from tidemill.domain.place import BucketPlace, checked_name, is_name

if TYPE_CHECKING:
    from obstore import ObjectMeta

AT_ONCE = 8
_user: dict[str, int] = {}  # the process to which the client's threads belong


class Bucket(Blobs):
    """A file becomes visible, whole, by one request: a put, or the end of a multipart upload."""

    def __init__(
        self,
        place: BucketPlace,
        limits: Limits | None = None,
        *,
        scratch: Path | None = None,
        open_store: Callable[[BucketPlace, Limits], Store] = open_store,
    ) -> None:
        self.place = place
        self.has_ranges = True
        self._limits = limits or Limits()
        self._scratch = scratch
        self._open_store = open_store
        self._opened: Store | None = None
        self._lock = threading.Lock()

    @property
    def store(self) -> Store:
        """Opened when it is first used, by the process that uses it: the client's threads do not survive a fork."""
        with self._lock:
            if _user.setdefault("pid", os.getpid()) != os.getpid():
                raise StoreUnavailable(f"{self.place} was in use when this process was forked: start a new one instead")
            if self._opened is None:
                with in_our_words(self.place, ""):
                    self._opened = self._open_store(self.place, self._limits)
            return self._opened

    @property
    def scratch(self) -> Path:
        """Among the temporary files of this machine; nobody else may look into it."""
        folder = self._scratch or Path(tempfile.gettempdir()) / f"tidemill-{os.getuid()}"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise StoreUnavailable(f"{folder} belongs to somebody else")
        return folder

    def write(self, name: str | None = None) -> BucketWriting:
        return BucketWriting(self, checked_name(name or uuid4().hex))

    def adopt(self, path: Path, name: str) -> Blob:
        return self.look(name) if self.has(name) else self.put_file(path, name)

    def copy(self, name: str, to: str) -> None:
        source, target = self._key(name), self._key(to)
        with in_our_words(self.place, name):
            obstore.copy(self.store, source, target)

    def open(self, name: str) -> BinaryIO:
        return io.BufferedReader(RangeReader(ObjectRanges(self, name, self._meta(name))), SMALLEST)

    def size(self, name: str) -> int:
        return self._meta(name)["size"]

    def has(self, name: str) -> bool:
        try:
            self._meta(name)
        except UnknownFile:
            return False
        return True

    def remove_all(self, names: Iterable[str]) -> list[str]:
        asked = [name for name in names if is_name(name)]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            here = [name for name, is_here in zip(asked, threads.map(self.has, asked), strict=True) if is_here]
        self._delete(here)
        return here

    def remove(self, name: str) -> None:
        self._delete([name])

    def remove_stale(self, age_s: float) -> list[str]:
        """What is unfinished in the bucket itself cannot be listed here: a rule of the bucket removes that."""
        return remove_stale(self.scratch, age_s)

    async def send(self, name: str, data: bytes, label: Label) -> Blob:
        key = self._key(name)
        with in_our_words(self.place, name, writing=True):
            await obstore.put_async(self.store, key, data, attributes=attributes_of(label), use_multipart=False)
        return Blob(name, len(data), hashlib.sha256(data).digest())

    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        top = self._key(below) if below else self.place.prefix
        skipped = len(self.place.prefix) + 1 if self.place.prefix else 0
        with in_our_words(self.place, below):
            for batch in obstore.list(self.store, prefix=top or None, offset=self._key(after) if after else None):
                yield from filter(is_name, (meta["path"][skipped:] for meta in batch))

    def url(self, name: str) -> str:
        return self.place.url(checked_name(name))

    def presigned(self, name: str, seconds: int) -> str | None:
        """None, too, when the keys of this process cannot sign."""
        key, store = self._key(name), self.store
        try:
            return obstore.sign(store, "GET", key, timedelta(seconds=seconds))
        except (BaseError, OSError, ValueError):
            return None

    def _meta(self, name: str) -> "ObjectMeta":
        key = self._key(name)
        with in_our_words(self.place, name):
            return obstore.head(self.store, key)

    def _delete(self, names: list[str]) -> None:
        keys = [self._key(name) for name in names]
        if keys:
            with suppress(UnknownFile), in_our_words(self.place, names[0]):
                obstore.delete(self.store, keys)

    def _key(self, name: str) -> str:
        return self.place.key(checked_name(name))
