"""Duties that one worker at a time does for all."""

from collections import defaultdict
from uuid import UUID

from tidemill.store.database import Connection
from tidemill.store.jobs import lock
from tidemill.store.statements import sql

CANCEL_AT_ONCE = 100  # batches: full lists are 100,000 outcomes to write


async def take_duty(conn: Connection, name: str, worker: str, seconds: float) -> bool:
    cursor = await conn.execute(sql("duty/take"), {"name": name, "worker": worker, "seconds": seconds})
    return await cursor.fetchone() is not None


async def resign(conn: Connection, worker: str) -> None:
    await conn.execute(sql("duty/resign"), {"worker": worker})


async def cancel_condemned(conn: Connection, job_id: UUID | None = None) -> int:
    """Cancel ready batches of jobs that are to be cancelled or failed; how many."""
    cursor = await conn.execute(sql("batch/cancel_ready"), {"job_id": job_id, "limit": CANCEL_AT_ONCE})
    rows = await cursor.fetchall()
    lists: dict[UUID, list[int]] = defaultdict(list)
    for _, job, seqs in rows:
        lists[job] += seqs or []
    for job in sorted(lists):
        if lists[job]:
            await conn.execute(sql("outcome/cancel_list"), {"job_id": job, "seqs": sorted(lists[job])})
    return len(rows)


async def to_fold(conn: Connection, least: int) -> list[UUID]:
    cursor = await conn.execute(sql("tally/to_fold"), {"least": least})
    return [row[0] for row in await cursor.fetchall()]


async def fold(conn: Connection, job_id: UUID) -> int:
    await lock(conn, job_id)
    cursor = await conn.execute(sql("tally/fold"), {"job_id": job_id})
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])
