"""Deleting a job while it runs: late flushes and chunks find no row and are refused."""

from uuid import UUID

from tidemill.domain.errors import UnknownJob
from tidemill.store.database import Connection
from tidemill.store.statements import sql

CHUNK = 20_000


async def delete(conn: Connection, job_id: UUID) -> None:
    """Remove a job and everything that could still move; its items and outcomes follow in chunks."""
    cursor = await conn.execute(sql("job/lock_for_delete"), {"job_id": job_id})
    if await cursor.fetchone() is None:
        raise UnknownJob(f"there is no job {job_id}")
    job = {"job_id": job_id}
    await conn.execute(sql("tally/remove"), job)
    await conn.execute(sql("ingest/remove"), job)
    # A flush that we waited for may have added a list after our statement looked: look again until none is left.
    while (await conn.execute(sql("batch/remove"), job)).rowcount:
        pass
    for table in ("item_fix", "activity", "sample", "repeat", "effect", "delivery"):
        await conn.execute(sql(f"{table}/remove"), job)
    await conn.execute(sql("outbox/remove_job"), job)
    await conn.execute(sql("file/condemn_one"), job)
    await conn.execute(sql("deleted_job/add"), job)
    await conn.execute(sql("job/remove"), job)


async def pending_removals(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("deleted_job/list"))
    return [row[0] for row in await cursor.fetchall()]


async def remove_rows(conn: Connection, job_id: UUID) -> int:
    """A chunk of a deleted job's items and outcomes; 0 when nothing is left."""
    removed = 0
    for table in ("outcome", "item"):
        cursor = await conn.execute(sql(f"{table}/remove_chunk"), {"job_id": job_id, "limit": CHUNK})
        removed += cursor.rowcount
    if not removed:
        await conn.execute(sql("deleted_job/remove"), {"job_id": job_id})
    return removed
