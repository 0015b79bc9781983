"""Correcting the input of an item that did not make it."""

from uuid import UUID

from tidemill.domain.errors import Conflict, UnknownJob
from tidemill.domain.page import MAX_NUMBER
from tidemill.domain.status import ItemStatus
from tidemill.store import activity
from tidemill.store.database import Connection
from tidemill.store.inspect import look_up
from tidemill.store.statements import sql

FIXABLE = (ItemStatus.FAILED, ItemStatus.NOT_FOUND)


async def fix(conn: Connection, job_id: UUID, seq: int, value: bytes, *, by: int) -> int:
    """Append a revision of an item's input; its number.

    Under the lock of the outcome: who sends the item round again waits, and then runs it with this input; who did so
    before us has made it open, and it can be corrected no more.
    """
    cursor = await conn.execute(sql("job/share"), {"job_id": job_id})
    job = await cursor.fetchone()
    if job is None:
        raise UnknownJob(f"there is no job {job_id}")
    if job[0] is not None:
        raise Conflict("the job's rows were purged; they cannot be corrected")
    if await _lock(conn, job_id, seq) not in FIXABLE:
        status = (await look_up(conn, job_id, seq))["status"]
        raise Conflict(f"item {seq} is {status}: only failed and not_found items can be corrected")
    params = {"job_id": job_id, "seq": seq, "input": value.decode(), "by": by}
    cursor = await conn.execute(sql("item_fix/add"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    rev = int(row[0])
    await activity.add(conn, job_id, by, "fix", seq=seq, rev=rev)
    return rev


async def _lock(conn: Connection, job_id: UUID, seq: int) -> str | None:
    """The stored status of an item that has an outcome."""
    if not 0 <= seq <= MAX_NUMBER:
        return None
    cursor = await conn.execute(sql("outcome/lock"), {"job_id": job_id, "seq": seq})
    row = await cursor.fetchone()
    return None if row is None else row[0]
