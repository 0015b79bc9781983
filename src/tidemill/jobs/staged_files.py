"""Files on their way to a job: until one is made of them, they go by themselves, whoever dies in between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from tidemill.core.errors import Unavailable
from tidemill.files import source_folders
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.runtime import Runtime
from tidemill.store import retention
from tidemill.store.database import Database


class StagedFiles:
    """Stores files under names that are known before their first byte. The job's own transaction keeps them."""

    def __init__(self, db: Database, blobs: BlobStore) -> None:
        self._db = db
        self._blobs = blobs

    @asynccontextmanager
    async def reserve_name(self) -> AsyncIterator[str]:
        """The name of a file that is about to be stored. Of one that does not come, nothing stays."""
        name = uuid4().hex
        await self._db.run(retention.register_unclaimed_file, name)
        try:
            yield name
        except Exception:
            await self.discard(name)
            raise

    async def stage_file(self, path: Path, max_bytes: int | None = None) -> Blob:
        """A copy: what is accepted stays, whatever becomes of the source. InvalidInput if it cannot be read."""
        return await self.stage_chunks(source_folders.read_source_file(path, max_bytes))

    async def stage_chunks(self, pieces: Iterator[bytes]) -> Blob:
        """What comes from elsewhere, as a file."""
        async with self.reserve_name() as name:
            return await asyncio.to_thread(self._blobs.put, pieces, name)

    async def copy_stored_file(self, name: str) -> Blob:
        """Another name for a stored file: who has the one may remove it, and the other stays."""
        async with self.reserve_name() as to:
            return await asyncio.to_thread(self._blobs.copy_and_hash, name, to)

    async def discard(self, name: str) -> None:
        """Nothing came of it. What cannot be removed now goes later."""
        if await asyncio.to_thread(self._blobs.try_remove, name):
            with suppress(Unavailable):
                await self._db.run(retention.keep_file, name)


@dataclass(frozen=True, slots=True)
class DownloadInfo:
    """What is known of a file that was made."""

    file_id: str
    name: str
    size: int
    sha256: str
    content_type: str


def make_staged_files(runtime: Runtime) -> StagedFiles:
    return StagedFiles(runtime.db, runtime.blobs)
