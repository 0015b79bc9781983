"""One object of a bucket, as it is read and as it is written."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO, Protocol

import obstore
from obstore.exceptions import GenericError

from tidemill.connectors.blobs.base import Label, Writing
from tidemill.connectors.blobs.client import Store, in_our_words
from tidemill.domain.errors import StoreUnavailable, Unavailable
from tidemill.domain.place import BucketPlace

if TYPE_CHECKING:
    from obstore import Attributes, GetOptions, ObjectMeta, WritableFile

PART_BYTES = 8 << 20  # a smaller file is one put; 10,000 parts are 80 GB
PARTS_AT_ONCE = 2  # in memory, beside the one that is being filled
_NO_RANGE = "non-partial"  # so says the client of an answer


class Shelf(Protocol):
    """What an object knows of its bucket."""

    place: BucketPlace
    has_ranges: bool  # until it turns out otherwise

    @property
    def store(self) -> Store: ...

    def remove(self, name: str) -> None: ...


class ObjectRanges:
    """A file that is replaced meanwhile is an error: it must not be read half and half."""

    def __init__(self, shelf: Shelf, name: str, meta: "ObjectMeta") -> None:
        self.size = meta["size"]
        self._shelf = shelf
        self._name = name
        self._meta = meta
        self._whole: BinaryIO | None = None

    def close(self) -> None:
        if self._whole is not None:
            self._whole.close()

    def read(self, start: int, end: int) -> bytes:
        with in_our_words(self._shelf.place, self._name):
            if self._shelf.has_ranges or end - start == self.size:
                with _learning(self._shelf):
                    return self._read(start, end)
            if self._whole is None:
                self._whole = self._fetch()
        self._whole.seek(start)
        return self._whole.read(end - start)

    def _read(self, start: int, end: int) -> bytes:
        options: GetOptions = {"if_match": self._meta["e_tag"]}
        if end - start < self.size:
            options["range"] = (start, end)
        return bytes(obstore.get(self._shelf.store, self._meta["path"], options=options).bytes())

    def _fetch(self) -> BinaryIO:
        """From a store that knows no ranges: all of it, into a file without a name."""
        file = tempfile.TemporaryFile()  # noqa: SIM115  closed with this
        try:
            options: GetOptions = {"if_match": self._meta["e_tag"]}
            for piece in obstore.get(self._shelf.store, self._meta["path"], options=options):
                file.write(piece)
        except BaseException:
            file.close()
            raise
        return file


@contextmanager
def _learning(shelf: Shelf) -> Iterator[None]:
    """A store that knows no ranges is asked for none again."""
    try:
        yield
    except GenericError as error:
        if _NO_RANGE not in str(error):
            raise
        shelf.has_ranges = False


class BucketWriting(Writing):
    """A multipart upload, or one put if it stays small: nothing is visible before its end."""

    def __init__(self, shelf: Shelf, name: str) -> None:
        super().__init__(name)
        self._shelf = shelf
        self._writer: WritableFile | None = None

    def _append(self, piece: bytes) -> None:
        with in_our_words(self._shelf.place, self.name, writing=True):
            self._opened().write(piece)

    def _complete(self) -> None:
        with in_our_words(self._shelf.place, self.name, writing=True):
            self._opened().close()

    def _drop(self) -> None:
        if self._is_finished:
            self._shelf.remove(self.name)
        elif self._writer is not None and not self._writer.closed():
            # What cannot be ended now, the store ends by its own rules: see docs/storage.md.
            with suppress(Unavailable), in_our_words(self._shelf.place, self.name, writing=True):
                self._writer.__exit__(StoreUnavailable, None, None)

    def _opened(self) -> "WritableFile":
        if self._writer is None:
            key, about = self._shelf.place.key(self.name), attributes_of(self.label)
            self._writer = obstore.open_writer(
                self._shelf.store, key, attributes=about, buffer_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE
            )
        return self._writer


def attributes_of(label: Label | None) -> "Attributes | None":
    """What the store keeps with the file, for a browser."""
    if label is None:
        return None
    shown = "".join(
        sign if sign.isascii() and sign.isprintable() and sign not in '"\\' else "_" for sign in label.file_name
    )
    return {"Content-Disposition": f'attachment; filename="{shown}"', "Content-Type": label.content_type}
