"""Carrying on with bulk operations that whoever asked for them did not wait for."""

from tidemill.engine.service import Service
from tidemill.store import bulk
from tidemill.store.about import tell_step
from tidemill.store.database import Database

EVERY_S = 2.0


class Bulk(Service):
    """Any process may do this; the lock of the operation lets one at a time."""

    name = "bulk"

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db

    async def tick(self) -> float:
        step = await self._db.run(bulk.step)
        if step is None:
            return EVERY_S
        await tell_step(self._db, step)
        return 0
