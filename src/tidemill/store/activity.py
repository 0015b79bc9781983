"""What people did to a job."""

from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from tidemill.domain.page import MAX_NUMBER, Page, Walk, mark_of, number
from tidemill.store.database import Connection
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.statements import sql

WALK = Walk("activity", (number,))


async def add(conn: Connection, job_id: UUID, user_id: int, verb: str, /, **details: Any) -> None:
    """Tell of a deed, in the transaction that does it."""
    params = {"job_id": job_id, "user_id": user_id, "verb": verb, "details": Jsonb(details)}
    await conn.execute(sql("activity/add"), params)


async def list_activity(conn: Connection, job_id: UUID, *, limit: int, after: object = None) -> Page[Row]:
    """The newest first."""
    mark = mark_of(job_id)
    (before,) = (MAX_NUMBER,) if after is None else WALK.read(after, mark)
    found = await rows(conn, "activity/list", {"job_id": job_id, "before": before, "limit": limit + 1})
    return Page(found[:limit], WALK.place(mark, found[limit - 1]["id"]) if len(found) > limit else None)
