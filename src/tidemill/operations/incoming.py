"""Files on their way to a job: until one is made of them, they go by themselves, whoever dies in between."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from uuid import uuid4

from tidemill.connectors import folders
from tidemill.connectors.blobs import Blob, Blobs
from tidemill.domain.errors import Unavailable
from tidemill.store import files
from tidemill.store.database import Database


class Incoming:
    """Stores files under names that are known before their first byte. The job's own transaction keeps them."""

    def __init__(self, db: Database, blobs: Blobs) -> None:
        self._db = db
        self._blobs = blobs

    @asynccontextmanager
    async def reserved(self) -> AsyncIterator[str]:
        """The name of a file that is about to be stored. Of one that does not come, nothing stays."""
        name = uuid4().hex
        await self._db.run(files.reserve, name)
        try:
            yield name
        except Exception:
            await self.drop(name)
            raise

    async def put_file(self, path: Path, max_bytes: int | None = None) -> Blob:
        """A copy: what is accepted stays, whatever becomes of the source. InvalidInput if it cannot be read."""
        return await self.put(folders.read(path, max_bytes))

    async def put(self, pieces: Iterator[bytes]) -> Blob:
        """What comes from elsewhere, as a file."""
        async with self.reserved() as name:
            return await asyncio.to_thread(self._blobs.put, pieces, name)

    async def link(self, name: str) -> Blob:
        """Another name for a stored file: who has the one may remove it, and the other stays."""
        async with self.reserved() as to:
            return await asyncio.to_thread(self._blobs.link, name, to)

    async def drop(self, name: str) -> None:
        """Nothing came of it. What cannot be removed now goes later."""
        if await asyncio.to_thread(self._blobs.abandon, name):
            with suppress(Unavailable):
                await self._db.run(files.keep, name)
