"""A folder of files, each whole or absent."""

import hashlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from tidemill.domain.errors import InvalidInput

_NAME = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Blob:
    id: str
    size: int
    sha256: bytes


class Blobs:
    """Written as a temporary file, synced, renamed: a crash leaves nothing that looks complete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, pieces: Iterable[bytes]) -> Blob:
        self._folder.mkdir(parents=True, exist_ok=True)
        name = uuid4().hex
        temporary = self._folder / f"{name}.tmp"
        digest, size = hashlib.sha256(), 0
        try:
            with temporary.open("xb") as file:
                for piece in pieces:
                    file.write(piece)
                    digest.update(piece)
                    size += len(piece)
                file.flush()
                os.fsync(file.fileno())
            temporary.rename(self._folder / name)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self._folder)
        return Blob(name, size, digest.digest())

    def put_file(self, path: Path) -> Blob:
        with path.open("rb") as file:
            return self.put(iter(lambda: file.read(1 << 20), b""))

    def open(self, blob_id: str) -> BinaryIO:
        if not _NAME.fullmatch(blob_id):
            raise InvalidInput(f"{blob_id!r} is not the name of a stored file")
        return (self._folder / blob_id).open("rb")

    def remove_all(self, blob_ids: Iterable[str]) -> list[str]:
        """Remove those of them that are here; which."""
        here = [blob_id for blob_id in blob_ids if _NAME.fullmatch(blob_id) and (self._folder / blob_id).exists()]
        for blob_id in here:
            self.remove(blob_id)
        return here

    def remove(self, blob_id: str) -> None:
        if _NAME.fullmatch(blob_id):
            (self._folder / blob_id).unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
