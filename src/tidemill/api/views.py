"""What the house knows, in the shapes of answers."""

from typing import Any

from tidemill.api.schemas.jobs import JobOut
from tidemill.api.schemas.operations import OperationOut
from tidemill.domain.export import KIND
from tidemill.domain.job import Job
from tidemill.operations import inspect
from tidemill.store import samples, workers
from tidemill.store.bulk import Operation
from tidemill.store.database import Database

LINKS = ("items", "batches", "activity", "events", "kickoff", "pause", "resume", "cancel", "reprocess", "export")


def job_out(job: Job) -> JobOut:
    return JobOut.model_validate(job_view(job), from_attributes=True)


def job_view(job: Job) -> dict[str, Any]:
    """The same, for an answer that has many."""
    here = f"/v1/jobs/{job.id}"
    return {
        "id": job.id,
        "key": job.key,
        "kind": job.kind,
        "user_id": job.owner_id,
        "status": job.status,
        "counts": job.counts,
        "ingest_complete": job.ingest_complete,
        "priority": job.priority,
        "failure_reason": job.failure_reason,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "closed_at": job.closed_at,
        "links": {"self": here} | {name: f"{here}/{name}" for name in LINKS} | _download(job),
    }


def _download(job: Job) -> dict[str, str]:
    return {"download": f"/v1/exports/{job.id}/download"} if job.kind == KIND else {}


async def job_detail(db: Database, job: Job) -> dict[str, Any]:
    rates = await db.run(samples.rates_of, job)
    columns = job.result_columns or (await inspect.grid(db, job.id)).columns.names
    return job_view(job) | {
        "params": job.params,
        "policy": job.policy,
        "errors": job.codes,
        "columns": columns,
        "columns_of": "result" if job.result_columns else "input",
        "rates": rates,
        "adaptive": await db.run(workers.adaptive_state, job.kind, ingesting=not job.ingest_complete),
        "retried": job.retried,
        "request_id": job.request_id,
        "traceparent": job.traceparent,
        "ip_address": job.ip_address,
        "file_id": job.file_id,
    }


def operation_out(operation: Operation) -> OperationOut:
    return OperationOut.model_validate(operation, from_attributes=True)
