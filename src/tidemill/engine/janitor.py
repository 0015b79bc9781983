"""Removing stored files that no job needs: of deleted and purged jobs, of submissions that never came to be."""

import asyncio

from tidemill.connectors.blobs import Blobs
from tidemill.engine.service import Service
from tidemill.store import jobs
from tidemill.store.database import Database

EVERY_S = 600.0
LEAST_AGE_S = 3600.0  # a file is stored before its job is: a young one may still get one


class Janitor(Service):
    """Looks through this machine's files; harmless where several do."""

    name = "janitor"

    def __init__(self, db: Database, blobs: Blobs) -> None:
        super().__init__()
        self._db = db
        self._blobs = blobs

    async def tick(self) -> float:
        await self.clean(LEAST_AGE_S)
        return EVERY_S

    async def clean(self, age: float) -> list[str]:
        """Remove files of at least that age that no job needs; which."""
        old = await asyncio.to_thread(self._blobs.older_than, age)
        needed = await self._db.run(jobs.needed_files, old) if old else set()
        unneeded = [name for name in old if name not in needed]
        for name in unneeded:
            await asyncio.to_thread(self._blobs.remove, name)
        return unneeded
