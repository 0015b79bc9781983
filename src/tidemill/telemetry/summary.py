"""Summaries: what a whole job, or the reading of its source, came to."""

from dataclasses import asdict
from uuid import UUID

from tidemill.domain.exporting import ExportPlan
from tidemill.domain.importing import KIND as IMPORT
from tidemill.domain.job import Job
from tidemill.telemetry.events import bound, emit


def job_closed(job: Job) -> None:
    """Nothing of a job is open any more. Its time is that since it was submitted, on the database's clock."""
    seconds = (job.closed_at - job.created_at).total_seconds() if job.closed_at and job.created_at else 0.0
    counts = job.counts
    with bound(kind=job.kind, request_id=job.request_id, traceparent=job.traceparent):
        emit(
            "job.closed",
            job=job.id,
            kind=job.kind,
            closed_as=job.status,
            duration_ms=round(seconds * 1000),
            rows_per_sec=_rate(counts.processed, seconds),
            error_rate=_share(counts.failed, counts.processed),
            counts={name: n for name, n in asdict(counts).items() if n},
        )
        if job.kind == IMPORT and "plan" in job.params:
            _import_completed(job, seconds)


def _import_completed(job: Job, seconds: float) -> None:
    """What the job came to, in the words of an import."""
    plan, counts = job.params["plan"], job.counts
    emit(
        "import.completed",
        job=job.id,
        resource_type=plan["resource"]["name"],
        mode="validate_only" if plan["validate_only"] else plan["mode"],
        status=job.status,
        total_records=counts.total,
        successful_records=counts.done,
        skipped_records=counts.skipped,
        failed_records=counts.failed,
        duration_ms=round(seconds * 1000),
        rows_per_sec=_rate(counts.processed, seconds),
        error_rate=_share(counts.failed, counts.processed),
    )


def export_completed(plan: ExportPlan, rows: int, seconds: float, job: UUID | None = None) -> None:
    """Rows of a table are in a file, or on their way to somebody: then there is no job."""
    emit(
        "export.completed",
        job=job,
        resource_type=plan.resource,
        format=str(plan.format),
        total_records=rows,
        duration_ms=round(seconds * 1000),
        rows_per_sec=_rate(rows, seconds),
    )


def ingest_completed(job_id: UUID, *, rows: int, total: int, defects: int, seconds: float) -> None:
    """A source is read to its end. ``rows`` are those of this reader: another may have begun it."""
    emit(
        "ingest.completed",
        job=job_id,
        rows=rows,
        total=total,
        defects=defects,
        duration_ms=round(seconds * 1000),
        rows_per_sec=_rate(rows, seconds),
        error_rate=_share(defects, rows),
    )


def _rate(n: int, seconds: float) -> float:
    return round(n / max(seconds, 0.001), 1)


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
