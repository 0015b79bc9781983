"""Emits the events of a job: what users do to it, and summaries when it is ingested or closed."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from uuid import UUID

from tidemill.core.job import Job
from tidemill.store.database import Database
from tidemill.store.job_records import read_job_event_fields
from tidemill.store.operation_records import OperationStep
from tidemill.telemetry.events import bind_fields, emit


@asynccontextmanager
async def bind_job_fields(db: Database, job_id: UUID) -> AsyncIterator[None]:
    """Add the job, its kind and its request to every event emitted inside."""
    known = await db.read(read_job_event_fields, job_id)
    with bind_fields(job=job_id, **known):
        yield


async def report_operation_step(db: Database, step: OperationStep) -> None:
    """Emit the event for items of a job that a step of a bulk operation requeued or cancelled.

    Dismissing items changes nothing that metrics or other processes follow, so it has no event.
    """
    if step.job_id is not None and step.items and step.verb not in ("dismiss", "restore"):
        with bind_fields(request_id=step.request_id):
            async with bind_job_fields(db, step.job_id):
                name = "items.cancelled" if step.verb == "cancel" else "job.reprocessed"
                emit(name, job=step.job_id, items=step.items)


def report_job_closed(job: Job, report_kind: Callable[[Job, float], None] | None = None) -> None:
    """Emit ``job.closed``. The duration starts when a worker starts the job, on the database's clock.

    Args:
        job: The closed job.
        report_kind: Emits the event that the job's kind adds, if any; called with the job and the duration in seconds.
    """
    seconds = job.duration_s or 0.0
    counts, processed = job.counts, job.counts.total - job.counts.cancelled  # nothing is open
    with bind_fields(kind=job.kind, request_id=job.request_id, traceparent=job.traceparent):
        emit(
            "job.closed",
            job=job.id,
            kind=job.kind,
            closed_as=job.status,
            duration_ms=round(seconds * 1000),
            rows_per_sec=compute_rate(processed, seconds),
            error_rate=compute_ratio(counts.failed, processed),
            counts={name: n for name, n in asdict(counts).items() if n},
        )
        if report_kind is not None:
            report_kind(job, seconds)


def report_ingest_completed(job_id: UUID, *, rows: int, total: int, defects: int, seconds: float) -> None:
    """Emit ``ingest.completed``. ``rows`` counts the rows of this reader; another may have started the ingest."""
    emit(
        "ingest.completed",
        job=job_id,
        rows=rows,
        total=total,
        defects=defects,
        duration_ms=round(seconds * 1000),
        rows_per_sec=compute_rate(rows, seconds),
        error_rate=compute_ratio(defects, rows),
    )


def compute_rate(n: int, seconds: float) -> float:
    return round(n / max(seconds, 0.001), 1)


def compute_ratio(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
