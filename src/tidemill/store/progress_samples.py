"""Stores progress samples of jobs and reads rates, estimates, charts and queue depth."""

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
from tidemill.store.workers import list_live_kinds

MAX_SAMPLES_PER_JOB, UNTHINNED_SAMPLES_PER_JOB = 2_000, 500  # the newest samples are never thinned
FLOW_UNSERVED_KINDS_MAX = 20
RECENT_SAMPLES_PER_JOB = 20  # cover more than half a minute


@dataclass(frozen=True, slots=True)
class ProgressPoint:
    """A point of a chart: the progress of the job, and its rate since the previous point."""

    at: datetime
    settled: int
    failed: int
    per_s: float | None


async def list_jobs_in_progress(conn: Connection) -> set[UUID]:
    """Return the jobs that workers are processing."""
    cursor = await conn.execute(sql("sample/turning"))
    return {row[0] for row in await cursor.fetchall()}


async def add_progress_samples(conn: Connection, job_ids: Sequence[UUID]) -> list[UUID]:
    """Add a sample for each of these jobs that has progressed. Return those jobs."""
    cursor = await conn.execute(sql("sample/add"), {"job_ids": sorted(job_ids)})
    return [row[0] for row in await cursor.fetchall()]


async def thin_samples(
    conn: Connection,
    job_ids: Sequence[UUID],
    *,
    max_samples: int = MAX_SAMPLES_PER_JOB,
    unthinned: int = UNTHINNED_SAMPLES_PER_JOB,
) -> int:
    """Thin the samples of these jobs if they have more than ``max_samples``. Return the number deleted."""
    params = {"job_ids": sorted(job_ids), "most": max_samples, "fresh": unthinned}
    return (await conn.execute(sql("sample/thin"), params)).rowcount


async def read_job_rates(conn: Connection, job: Job) -> ProgressRates:
    """Return the rate of a job and its estimated completion."""
    now, samples = await _fetch_clock_and_recent_samples(conn, job.id)
    has_worker = job.is_closed or job.kind in await list_live_kinds(conn)
    return compute_rates(samples, job, now, has_worker=has_worker)


async def read_progress_chart(conn: Connection, job_id: UUID, points: int = 120) -> list[ProgressPoint]:
    """Return the progress of a job as at most ``points`` points, starting at its submission."""
    async with conn.cursor(row_factory=class_row(ProgressPoint)) as cursor:
        await cursor.execute(sql("sample/chart"), {"job_id": job_id, "points": points})
        return await cursor.fetchall()


async def _fetch_clock_and_recent_samples(conn: Connection, job_id: UUID) -> tuple[datetime, list[ProgressSample]]:
    """Return the current time and the samples."""
    cursor = await conn.execute(sql("sample/recent"), {"job_id": job_id, "limit": RECENT_SAMPLES_PER_JOB})
    rows = await cursor.fetchall()
    return rows[0][0], [ProgressSample(*sample) for _, *sample in reversed(rows) if sample[0] is not None]


THROUGHPUT_STEP_S, THROUGHPUT_POINTS = 30, 30  # 15 minutes
THROUGHPUT_MAX_JOBS = 1_000


async def read_throughput(conn: Connection, owner_id: int | None) -> RowDict:
    """Return open items by status, settled items per 30 seconds of the last 15 minutes, and work that cannot start.

    This is the work of paused jobs, and that of kinds that no live worker handles: open items, and jobs whose source is
    not read yet.
    """
    scope = "of_all" if owner_id is None else "of_owner"
    params = {"owner_id": owner_id, "step": THROUGHPUT_STEP_S, "points": THROUGHPUT_POINTS, "jobs": THROUGHPUT_MAX_JOBS}
    (counts,) = await fetch_rows(conn, sql(f"batch/open_{scope}"), params)
    by_kind = await fetch_rows(conn, sql(f"batch/open_by_kind_{scope}"), params)
    live = await list_live_kinds(conn)
    unserved = [row for row in by_kind if row["may_run"] and row["kind"] not in live]
    unserved.sort(key=lambda row: (-row["items"], -row["jobs"], row["kind"]))
    return {
        "paused": sum(row["items"] for row in by_kind if not row["may_run"]),
        "unserved": unserved[:FLOW_UNSERVED_KINDS_MAX],
        "open": counts,
        "step_s": THROUGHPUT_STEP_S,
        "points": await fetch_rows(conn, sql(f"sample/flow_{scope}"), params),
    }


@dataclass(frozen=True, slots=True)
class QueueDepth:
    """Open items by status; ``oldest_s`` is the age of the oldest due work."""

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
    """The remaining work of a job. ``next_due_at`` is None if no work waits or the job must not run."""

    is_open: bool
    next_due_at: datetime | None
    due_in: float | None


async def read_remaining_work(conn: Connection, job_id: UUID) -> RemainingWork:
    async with conn.cursor(row_factory=class_row(RemainingWork)) as cursor:
        await cursor.execute(sql("job/outlook"), {"job_id": job_id})
        row = await cursor.fetchone()
    if row is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    return row
