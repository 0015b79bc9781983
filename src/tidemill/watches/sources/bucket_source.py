"""The watch source for a bucket of an object store, or a prefix in it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import obstore

from tidemill.core.blob_location import BucketLocation
from tidemill.core.errors import UnknownFile
from tidemill.files.blobs.bucket_store import ObjectStoreLimits, open_object_store, translate_store_errors
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import ByteChunks, WatchSource

if TYPE_CHECKING:
    from obstore import ObjectMeta

BUCKET_READ_BYTES = 1 << 20
BUCKET_WATCH_LIMITS = ObjectStoreLimits(tries=3, all_tries_s=20.0)


class BucketWatchSource(WatchSource):
    """The objects below a prefix. Object stores cannot rename, so a move is a copy and a deletion."""

    def __init__(self, place: BucketLocation, config: Mapping[str, str] | None = None) -> None:
        self._place = place
        with translate_store_errors(place, ""):
            self._store = open_object_store(place, BUCKET_WATCH_LIMITS, config)

    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:
        top = self._place.prefix or None
        with translate_store_errors(self._place, ""):
            if not recursive:  # this does not list deeper keys, which include all archived files
                yield from self._make_listed_files(obstore.list_with_delimiter(self._store, top)["objects"])
                return
            for metas in obstore.list(self._store, top, chunk_size=1_000):
                self.raise_if_interrupted()
                yield from (
                    one for one in self._make_listed_files(metas) if skip_folders.isdisjoint(one.path.split("/")[:-1])
                )

    def find_file(self, path: str) -> ListedFile | None:
        try:
            with translate_store_errors(self._place, path):
                return self._make_listed_file(obstore.head(self._store, self._place.key_for(path)))
        except UnknownFile:
            return None

    def read(self, path: str) -> ByteChunks:
        with translate_store_errors(self._place, path):
            for piece in obstore.get(self._store, self._place.key_for(path)).stream(min_chunk_size=BUCKET_READ_BYTES):
                yield bytes(piece)

    def move(self, entry: ListedFile, to: str) -> bool:
        """Copy the object to ``to`` and delete the original. Return False if another version has replaced it.

        This overwrites ``to``. The caller must make sure that ``to`` is free, or the copy of an interrupted move.
        """
        if (now := self.find_file(entry.path)) is None:
            if self.find_file(to) is None:
                raise UnknownFile(f'"{entry.path}" does not exist any more')
            return True
        if not now.is_same_version(entry):
            return False
        with translate_store_errors(self._place, entry.path):
            obstore.copy(self._store, self._place.key_for(entry.path), self._place.key_for(to))
            now = self.find_file(entry.path)
            is_replaced = now is not None and not now.is_same_version(entry)  # the copy may be the new version too
            with suppress(FileNotFoundError):
                obstore.delete(self._store, self._place.key_for(to if is_replaced else entry.path))
        return not is_replaced

    def _make_listed_files(self, metas: Iterable["ObjectMeta"]) -> Iterator[ListedFile]:
        """Yield the entries without the placeholder object that some tools create for a folder."""
        return (self._make_listed_file(meta) for meta in metas if meta["path"] != self._place.prefix)

    def _make_listed_file(self, meta: "ObjectMeta") -> ListedFile:
        path = meta["path"].removeprefix(f"{self._place.prefix}/" if self._place.prefix else "")
        # Some stores return fractions of a second, or an ETag without quotes, in listings but not for single objects.
        changed, tag = meta["last_modified"].replace(microsecond=0), (meta["e_tag"] or "").strip('"')
        version = f"{changed.isoformat()} {tag}".strip()
        return ListedFile(path, meta["size"], version, changed_at=meta["last_modified"].timestamp())


def make_store_config(secrets: Mapping[str, str | None]) -> dict[str, str] | None:
    """Return the store options that a watch sets, or None to use the environment, as for stored files."""
    config = {name: value for name, value in secrets.items() if value}
    return config or None
