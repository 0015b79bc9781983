"""A bucket of an object store, or a part of it."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import obstore

from tidemill.connectors.blobs.client import Limits, in_our_words, open_store
from tidemill.connectors.inlets.base import Inlet, Pieces
from tidemill.domain.errors import UnknownFile
from tidemill.domain.place import BucketPlace
from tidemill.domain.watching import Entry

if TYPE_CHECKING:
    from obstore import ObjectMeta

PIECE = 1 << 20
LIMITS = Limits(tries=3, all_tries_s=20.0)


class BucketInlet(Inlet):
    """Keys below a prefix. There are no folders: putting a file away is a copy, and then a removal."""

    def __init__(self, place: BucketPlace, config: Mapping[str, str] | None = None) -> None:
        self._place = place
        with in_our_words(place, ""):
            self._store = open_store(place, LIMITS, config)

    def list(self, *, deep: bool, skip: frozenset[str]) -> Iterator[Entry]:
        top = self._place.prefix or None
        with in_our_words(self._place, ""):
            if not deep:  # what is below, and that is all we ever put away, is not even listed
                yield from self._entries(obstore.list_with_delimiter(self._store, top)["objects"])
                return
            for metas in obstore.list(self._store, top, chunk_size=1_000):
                self.insist()
                yield from (one for one in self._entries(metas) if skip.isdisjoint(one.path.split("/")[:-1]))

    def look(self, path: str) -> Entry | None:
        try:
            with in_our_words(self._place, path):
                return self._entry(obstore.head(self._store, self._place.key(path)))
        except UnknownFile:
            return None

    def read(self, path: str) -> Pieces:
        with in_our_words(self._place, path):
            for piece in obstore.get(self._store, self._place.key(path)).stream(min_chunk_size=PIECE):
                yield bytes(piece)

    def move(self, entry: Entry, to: str) -> bool:
        """Another file of that name is overwritten only if it is a copy that was begun before: look first."""
        if (now := self.look(entry.path)) is None:
            if self.look(to) is None:
                raise UnknownFile(f"there is no {entry.path} any more")
            return True
        if not now.is_like(entry):
            return False
        with in_our_words(self._place, entry.path):
            obstore.copy(self._store, self._place.key(entry.path), self._place.key(to))
            now = self.look(entry.path)
            is_replaced = now is not None and not now.is_like(entry)  # and so may be what was copied
            with suppress(FileNotFoundError):
                obstore.delete(self._store, self._place.key(to if is_replaced else entry.path))
        return not is_replaced

    def _entries(self, metas: Iterable["ObjectMeta"]) -> Iterator[Entry]:
        """Without the object that some tools put where they show a folder."""
        return (self._entry(meta) for meta in metas if meta["path"] != self._place.prefix)

    def _entry(self, meta: "ObjectMeta") -> Entry:
        path = meta["path"].removeprefix(f"{self._place.prefix}/" if self._place.prefix else "")
        # In a listing some stores know parts of a second, or a tag without its quotes; the head of an object does not.
        changed, tag = meta["last_modified"].replace(microsecond=0), (meta["e_tag"] or "").strip('"')
        version = f"{changed.isoformat()} {tag}".strip()
        return Entry(path, meta["size"], version, changed=meta["last_modified"].timestamp())


def config_of(secrets: Mapping[str, str | None]) -> dict[str, str] | None:
    """What a watch says of its own store; None: all is in the environment, as for stored files."""
    found = {name: value for name, value in secrets.items() if value}
    return found or None
