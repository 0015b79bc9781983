"""Removing stored files that no job needs: of jobs that were deleted or purged, and halves of crashed writers."""

import asyncio

from tidemill.connectors.blobs import Blobs
from tidemill.domain.errors import StoreDenied, StoreUnavailable
from tidemill.engine.service import Service
from tidemill.store import files
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

EVERY_S = 300.0
AT_ONCE = 1_000  # files of a look
UNFINISHED_S = 3_600.0  # nobody pauses for so long in mid-file


class Janitor(Service):
    """Looks after the files this machine sees; removes only what its own database condemned: others may share them."""

    name = "janitor"

    def __init__(self, db: Database, blobs: Blobs) -> None:
        super().__init__()
        self._db = db
        self._blobs = blobs

    async def tick(self) -> float:
        try:
            await self.clean()
            await asyncio.to_thread(self._blobs.remove_stale, UNFINISHED_S)
        except (StoreUnavailable, StoreDenied) as error:
            emit("store.unavailable", error=str(error))
        return EVERY_S

    async def clean(self) -> list[str]:
        """Remove what is not needed and is on this machine; which."""
        removed: list[str] = []
        after = ""
        while condemned := await self._db.run(files.unneeded, after, AT_ONCE):
            here = await asyncio.to_thread(self._blobs.remove_all, condemned)
            await self._db.run(files.forget, here)
            removed += here
            after = condemned[-1]
        if removed:
            emit("file.removed", files=len(removed))
        return removed
