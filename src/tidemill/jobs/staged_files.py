"""Files that are stored before their job exists. Maintenance removes them if the job is never created."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from uuid import uuid4

from tidemill.config import Settings
from tidemill.core.errors import Unavailable
from tidemill.core.principal import Role
from tidemill.failpoints import failpoint
from tidemill.files import source_folders
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.jobs.work_gates import run_in_upload_thread
from tidemill.runtime import Runtime
from tidemill.store import retention
from tidemill.store.database import Database


class StagedFiles:
    """Stores files under names that are registered first. The transaction that creates the job claims the file."""

    def __init__(self, db: Database | None, blobs: BlobStore) -> None:
        """``db``: None does not register names, for a store that its owner removes as a whole."""
        self._db = db
        self._blobs = blobs

    @asynccontextmanager
    async def reserve_name(self) -> AsyncIterator[str]:
        """Reserve the name of a file; discard the file if the block fails."""
        name = uuid4().hex
        if self._db is not None:
            await self._db.run(retention.register_unclaimed_file, name)
        try:
            yield name
            failpoint("submit.file_staged")
        except Exception:
            await self.discard(name)
            raise

    async def stage_file(self, path: Path) -> Blob:
        """Store a copy of a file, so that the original may change later; raise InvalidInput if it cannot be read."""
        return await self.stage_chunks(source_folders.iter_local_file_chunks(path))

    async def stage_source_file(self, settings: Settings, role: Role, folder: str, path: str) -> Blob:
        """Store a copy of a file in a source folder, if the role may read it; raise InvalidInput otherwise."""
        file = await asyncio.to_thread(source_folders.open_source_file, settings.sources, role, folder, path)
        max_bytes = settings.max_file_size_mb << 20
        return await self.stage_chunks(source_folders.iter_file_chunks(file, PurePath(path).name, max_bytes))

    async def stage_chunks(self, pieces: Iterator[bytes]) -> Blob:
        """Store chunks as a file."""
        async with self.reserve_name() as name:
            return await run_in_upload_thread(self._blobs.put, pieces, name)

    async def copy_stored_file(self, name: str) -> Blob:
        """Copy a stored file under a new name, so that either can be removed."""
        async with self.reserve_name() as to:
            return await run_in_upload_thread(self._blobs.copy_and_hash, name, to)

    async def discard(self, name: str) -> None:
        """Remove a file. If that fails, maintenance removes it later."""
        if await asyncio.to_thread(self._blobs.try_remove, name) and self._db is not None:
            with suppress(Unavailable):
                await self._db.run(retention.clear_file_expiry, name)


@dataclass(frozen=True, slots=True)
class DownloadInfo:
    """Metadata of a file that can be downloaded."""

    file_id: str
    name: str
    size: int
    sha256: str
    content_type: str


def make_staged_files(runtime: Runtime) -> StagedFiles:
    return StagedFiles(runtime.db, runtime.blobs)
