"""Duties that one worker at a time does for all."""

from collections import defaultdict
from typing import Any
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.jobs import lock
from tidemill.store.statements import sql

RANGES_AT_ONCE = 5_000
LISTS_AT_ONCE = 100  # full ones are 100,000 outcomes to write


async def take_duty(conn: Connection, name: str, worker: str, seconds: float) -> bool:
    cursor = await conn.execute(sql("duty/take"), {"name": name, "worker": worker, "seconds": seconds})
    return await cursor.fetchone() is not None


async def resign(conn: Connection, worker: str) -> None:
    await conn.execute(sql("duty/resign"), {"worker": worker})


async def cancel_condemned(conn: Connection, job_id: UUID | None = None) -> int:
    """Cancel some ready batches of jobs that are to be cancelled or failed; how many. 0: there are none left."""
    ranges = await _cancel_ready(conn, job_id, lists=False, limit=RANGES_AT_ONCE)
    emptied = await _cancel_ready(conn, job_id, lists=True, limit=LISTS_AT_ONCE)
    lists: dict[UUID, list[int]] = defaultdict(list)
    for _, job, seqs in emptied:
        lists[job] += seqs
    for job in sorted(lists):
        await conn.execute(sql("outcome/cancel_list"), {"job_id": job, "seqs": sorted(lists[job])})
    return len(ranges) + len(emptied)


async def _cancel_ready(conn: Connection, job_id: UUID | None, *, lists: bool, limit: int) -> list[Any]:
    cursor = await conn.execute(sql("batch/cancel_ready"), {"job_id": job_id, "lists": lists, "limit": limit})
    return await cursor.fetchall()


async def to_fold(conn: Connection, least: int) -> list[UUID]:
    cursor = await conn.execute(sql("tally/to_fold"), {"least": least})
    return [row[0] for row in await cursor.fetchall()]


async def fold(conn: Connection, job_id: UUID) -> int:
    await lock(conn, job_id)
    cursor = await conn.execute(sql("tally/fold"), {"job_id": job_id})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])
