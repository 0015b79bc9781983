"""A job's batches and activity, and how much is open."""

from uuid import UUID

from tidemill.domain.page import MAX_NUMBER, Page, Walk, mark_of, number
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.lists.grid import find_grid
from tidemill.store.statements import sql

WALK = Walk("batches", (number,))
OpenSums = dict[tuple[str, ItemStatus], int]  # of a kind and a status


async def list_batches(conn: Connection, job_id: UUID, *, limit: int, after: object = None) -> Page[Row]:
    """The newest first."""
    mark = mark_of(job_id)
    (before,) = (MAX_NUMBER,) if after is None else WALK.read(after, mark)
    await find_grid(conn, job_id)
    found = await rows(conn, "batch/list", {"job_id": job_id, "before": before, "limit": limit + 1})
    return Page(found[:limit], WALK.place(mark, found[limit - 1]["id"]) if len(found) > limit else None)


async def sum_open(conn: Connection, owner_id: int | None) -> OpenSums:
    """How many items are open, from one row a batch."""
    name = "batch/sum_open_of_all" if owner_id is None else "batch/sum_open_of_owner"
    cursor = await conn.execute(sql(name), {"owner_id": owner_id})
    return {(kind, ItemStatus(status)): items for kind, status, items in await cursor.fetchall()}
