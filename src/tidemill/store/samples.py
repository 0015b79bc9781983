"""How far jobs were, every few seconds: rates, estimates and charts come from here."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.domain.job import Job
from tidemill.domain.progress import Rates, Sample, rates
from tidemill.store.database import Connection, one_statement, relaxed
from tidemill.store.statements import sql

MOST, FRESH = 2_000, 500  # samples of a job; of these the newest are never thinned
RECENT = 20  # more than half a minute of them


@dataclass(frozen=True, slots=True)
class Point:
    """Of a chart: how far the job was, and how quick since the point before."""

    at: datetime
    settled: int
    failed: int
    per_s: float | None


async def turning(conn: Connection) -> set[UUID]:
    """The jobs that somebody works on."""
    cursor = await conn.execute(sql("sample/turning"))
    return {row[0] for row in await cursor.fetchall()}


@relaxed
async def add(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Take a sample of each of these jobs that has moved; which."""
    cursor = await conn.execute(sql("sample/add"), {"job_ids": sorted(job_ids)})
    return [row[0] for row in await cursor.fetchall()]


@relaxed
async def thin(conn: Connection, job_ids: Sequence[UUID], *, most: int = MOST, fresh: int = FRESH) -> int:
    """Leave these jobs not more samples than that; how many went."""
    params = {"job_ids": sorted(job_ids), "most": most, "fresh": fresh}
    return (await conn.execute(sql("sample/thin"), params)).rowcount


@one_statement
async def recent(conn: Connection, job_id: UUID) -> list[Sample]:
    """The newest samples of a job, the oldest of them first."""
    return (await _recent(conn, job_id))[1]


@one_statement
async def rates_of(conn: Connection, job: Job) -> Rates:
    """How quick a job is, and when it may be done."""
    now, found = await _recent(conn, job.id)
    return rates(found, job, now)


@one_statement
async def chart(conn: Connection, job_id: UUID, points: int = 120) -> list[Point]:
    """A job's way in so many points at most, beginning where it was submitted."""
    async with conn.cursor(row_factory=class_row(Point)) as cursor:
        await cursor.execute(sql("sample/chart"), {"job_id": job_id, "points": points})
        return await cursor.fetchall()


async def _recent(conn: Connection, job_id: UUID) -> tuple[datetime, list[Sample]]:
    """What time it is, and the samples."""
    cursor = await conn.execute(sql("sample/recent"), {"job_id": job_id, "limit": RECENT})
    found = await cursor.fetchall()
    return found[0][0], [Sample(*sample) for _, *sample in reversed(found) if sample[0] is not None]
