"""The part of a file that is here already. It survives its process, and is nobody's but its holder's."""

import contextlib
import os
from io import BufferedRandom
from pathlib import Path
from typing import Self
from uuid import uuid4

import msgspec

from tidemill.connectors.blobs import Blob, Blobs
from tidemill.connectors.locks import is_ours
from tidemill.domain.errors import Interrupted
from tidemill.domain.place import checked_name


class About(msgspec.Struct, frozen=True):
    """What a part is a part of."""

    url: str  # without its query
    validator: str | None = None  # for If-Range
    total: int | None = None
    name: str | None = None
    content_type: str | None = None
    etag: str | None = None


class Part:
    """Two files in the scratch folder, named after the blob and their holder; the janitor removes stale ones.

    Whoever comes later renames them, so that an earlier holder who is still there cannot finish any more. If he still
    writes, he keeps the file, without a name, and the later one starts anew.
    """

    def __init__(self, blobs: Blobs, blob_id: str) -> None:
        self._blobs = blobs
        self._blob_id = checked_name(blob_id)
        self._flat = blob_id.replace("/", "~")
        self._path = blobs.scratch / f"{self._flat}.{uuid4().hex}.part.tmp"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = (None if blobs.has(blob_id) else self._inherited()) or self._made()
        self.size = os.fstat(self._file.fileno()).st_size
        self.about = self._read_about() if self.size else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # of a full disk, which was told of already
            self._file.close()

    @property
    def is_whole(self) -> bool:
        return self.about is not None and self.about.total == self.size

    def begin(self, about: About) -> None:
        """From the first byte, of this."""
        self.forget()
        self._describe(about)

    def forget(self) -> None:
        self._file.truncate(0)
        self.size, self.about = 0, None

    def append(self, piece: bytes) -> None:
        self._file.write(piece)
        self.size += len(piece)

    def know_total(self, total: int) -> None:
        if self.about is not None and self.about.total != total:
            self._describe(msgspec.structs.replace(self.about, total=total))

    def finish(self) -> Blob:
        """Whole, durable and under its name. If another one was quicker, his stays: it may be in use."""
        self._file.flush()
        os.fsync(self._file.fileno())
        try:
            blob = self._blobs.adopt(self._path, self._blob_id)
        except FileNotFoundError:
            raise Interrupted("another process took over the download") from None
        self.discard()
        return blob

    def discard(self) -> None:
        self._path.unlink(missing_ok=True)
        self._beside(self._path).unlink(missing_ok=True)

    def _inherited(self) -> BufferedRandom | None:
        """What somebody who is gone left behind."""
        for left in self._path.parent.glob(f"{self._flat}.*.part.tmp"):
            with contextlib.suppress(FileNotFoundError):
                left.rename(self._path)
                with contextlib.suppress(FileNotFoundError):
                    self._beside(left).rename(self._beside(self._path))
                file = self._opened()
                if is_ours(file):
                    return file
                file.close()
                self.discard()
        return None

    def _made(self) -> BufferedRandom:
        file = self._opened()
        is_ours(file)  # where files cannot be locked, nobody inherits them
        return file

    def _opened(self) -> BufferedRandom:
        return self._path.open("a+b")

    def _describe(self, about: About) -> None:
        self.about = about
        self._beside(self._path).write_bytes(msgspec.json.encode(about))

    def _read_about(self) -> About | None:
        try:
            return msgspec.json.decode(self._beside(self._path).read_bytes(), type=About)
        except (OSError, msgspec.MsgspecError):
            return None

    @staticmethod
    def _beside(path: Path) -> Path:
        return path.with_name(path.name.replace(".part.tmp", ".about.tmp"))
