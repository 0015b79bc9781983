"""Samples of the progress of jobs: rates, estimates, charts, and how much is open."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from psycopg.rows import class_row

from tidemill.core.errors import UnknownJob
from tidemill.core.job import Job
from tidemill.core.progress import ProgressRates, ProgressSample, compute_rates
from tidemill.store.database import Connection
from tidemill.store.statements import RowDict, fetch_rows, sql

MAX_SAMPLES_PER_JOB, UNTHINNED_SAMPLES_PER_JOB = 2_000, 500  # samples of a job; of these the newest are never thinned
RECENT_SAMPLES_PER_JOB = 20  # more than half a minute of them


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """Of a chart: how far the job was, and how quick since the point before."""

    at: datetime
    settled: int
    failed: int
    per_s: float | None


async def list_jobs_in_progress(conn: Connection) -> set[UUID]:
    """The jobs that somebody works on."""
    cursor = await conn.execute(sql("sample/turning"))
    return {row[0] for row in await cursor.fetchall()}


async def add_samples(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Take a sample of each of these jobs that has moved; which."""
    cursor = await conn.execute(sql("sample/add"), {"job_ids": sorted(job_ids)})
    return [row[0] for row in await cursor.fetchall()]


async def thin_samples(
    conn: Connection,
    job_ids: Sequence[UUID],
    *,
    max_samples: int = MAX_SAMPLES_PER_JOB,
    unthinned: int = UNTHINNED_SAMPLES_PER_JOB,
) -> int:
    """Leave these jobs not more samples than that; how many went."""
    params = {"job_ids": sorted(job_ids), "most": max_samples, "fresh": unthinned}
    return (await conn.execute(sql("sample/thin"), params)).rowcount


async def list_recent_samples(conn: Connection, job_id: UUID) -> list[ProgressSample]:
    """The newest samples of a job, the oldest of them first."""
    return (await _fetch_recent_samples(conn, job_id))[1]


async def read_job_rates(conn: Connection, job: Job) -> ProgressRates:
    """How quick a job is, and when it may be done."""
    now, found = await _fetch_recent_samples(conn, job.id)
    return compute_rates(found, job, now)


async def read_progress_chart(conn: Connection, job_id: UUID, points: int = 120) -> list[ProgressPoint]:
    """A job's way in so many points at most, beginning where it was submitted."""
    async with conn.cursor(row_factory=class_row(ProgressPoint)) as cursor:
        await cursor.execute(sql("sample/chart"), {"job_id": job_id, "points": points})
        return await cursor.fetchall()


async def _fetch_recent_samples(conn: Connection, job_id: UUID) -> tuple[datetime, list[ProgressSample]]:
    """What time it is, and the samples."""
    cursor = await conn.execute(sql("sample/recent"), {"job_id": job_id, "limit": RECENT_SAMPLES_PER_JOB})
    found = await cursor.fetchall()
    return found[0][0], [ProgressSample(*sample) for _, *sample in reversed(found) if sample[0] is not None]


THROUGHPUT_STEP_S, THROUGHPUT_POINTS = 30, 30  # a quarter of an hour
THROUGHPUT_MAX_JOBS = 1_000


async def read_throughput(conn: Connection, owner_id: int | None) -> RowDict:
    """Open items by status, and what was settled in each half minute of the last quarter of an hour."""
    of = "of_all" if owner_id is None else "of_owner"
    asked = {"owner_id": owner_id, "step": THROUGHPUT_STEP_S, "points": THROUGHPUT_POINTS, "jobs": THROUGHPUT_MAX_JOBS}
    (counts,) = await fetch_rows(conn, sql(f"batch/open_{of}"), asked)
    return {
        "open": counts,
        "step_s": THROUGHPUT_STEP_S,
        "points": await fetch_rows(conn, sql(f"sample/flow_{of}"), asked),
    }


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Open items by status; ``oldest_s`` is how long what was due first has waited."""

    pending: int
    processing: int
    retry_wait: int
    oldest_s: float


async def read_queue_depth(conn: Connection) -> QueueDepth:
    async with conn.cursor(row_factory=class_row(QueueDepth)) as cursor:
        await cursor.execute(sql("queue/depth"))
        row = await cursor.fetchone()
    assert row is not None  # noqa: S101  sums without GROUP BY
    return row


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What is left of a job. ``next_due_at`` is None when nothing waits, or the job is not to run."""

    is_open: bool
    next_due_at: datetime | None
    due_in: float | None


async def read_remaining_work(conn: Connection, job_id: UUID) -> RemainingWork:
    async with conn.cursor(row_factory=class_row(RemainingWork)) as cursor:
        await cursor.execute(sql("job/outlook"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f"there is no job {job_id}")
    return row
