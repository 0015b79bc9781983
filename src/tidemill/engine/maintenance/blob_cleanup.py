"""Removing stored files that no job needs: of jobs that were deleted or purged, and halves of crashed writers."""

import asyncio

from tidemill.core.errors import StorageAccessDenied, StorageUnavailable
from tidemill.engine.loop import Loop
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.store import retention
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

BLOB_CLEANUP_INTERVAL_S = 300.0
BLOB_CLEANUP_BATCH_FILES = 1_000  # files of a look
UNFINISHED_FILE_MAX_AGE_S = 3_600.0  # nobody pauses for so long in mid-file


class BlobCleanupLoop(Loop):
    """Looks after the files this machine sees; removes only what its own database condemned: others may share them."""

    name = "janitor"

    def __init__(self, db: Database, blobs: BlobStore) -> None:
        super().__init__()
        self._db = db
        self._blobs = blobs

    async def tick(self) -> float:
        try:
            await self.remove_unneeded_blobs()
            await asyncio.to_thread(self._blobs.remove_stale, UNFINISHED_FILE_MAX_AGE_S)
        except (StorageUnavailable, StorageAccessDenied) as error:
            emit("store.unavailable", error=str(error))
        return BLOB_CLEANUP_INTERVAL_S

    async def remove_unneeded_blobs(self) -> list[str]:
        """Remove what is not needed and is on this machine; which."""
        removed: list[str] = []
        after = ""
        while condemned := await self._db.run(retention.list_unneeded_files, after, BLOB_CLEANUP_BATCH_FILES):
            here = await asyncio.to_thread(self._blobs.remove_many, condemned)
            await self._db.run(retention.forget_files, here)
            removed += here
            after = condemned[-1]
        if removed:
            emit("file.removed", files=len(removed))
        return removed
