"""Converts jobs and operations to response models."""

from typing import Any

from tidemill.core.job import Job
from tidemill.jobs import queries
from tidemill.jobs.bulk_operation_schemas import OperationOut
from tidemill.jobs.schemas import FetchOut, JobOut
from tidemill.runtime import Runtime
from tidemill.store import ingestion, workers
from tidemill.store.database import Database
from tidemill.store.operation_records import QUOTA_KEY, BulkOperation

JOB_LINKS = ("items", "batches", "activity", "events", "kickoff", "pause", "resume", "cancel", "reprocess", "export")


def build_job_out(runtime: Runtime, job: Job) -> JobOut:
    return JobOut.model_validate(build_job_view(runtime, job), from_attributes=True)


def build_job_view(runtime: Runtime, job: Job) -> dict[str, Any]:
    """Return the fields of ``JobOut`` as a dict, which is faster to encode in responses with many jobs."""
    hooks = runtime.kind_hooks.get(job.kind)
    more = hooks.get_links(job) if hooks is not None and hooks.get_links is not None else {}
    target = hooks.get_target(job) if hooks is not None and hooks.get_target is not None else None
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
        "file_name": job.file_name,
        "target": target,
        "failure_reason": job.failure_reason,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "started_at": job.started_at,
        "closed_at": job.closed_at,
        "duration_s": job.duration_s,
        "idle_s": job.idle_s,
        "links": {"self": here} | {name: f"{here}/{name}" for name in JOB_LINKS} | dict(more),
    }


async def read_job_detail(runtime: Runtime, job: Job) -> dict[str, Any]:
    db = runtime.db
    rates = await queries.get_job_rates(db, job)
    columns = job.result_columns or (await queries.get_item_list_scope(db, job.id)).columns.names
    return build_job_view(runtime, job) | {
        "params": job.params,
        "policy": job.policy,
        "errors": job.codes,
        "columns": columns,
        "columns_of": "result" if job.result_columns else "input",
        "rates": rates,
        "adaptive": await db.read(workers.read_adaptive_state, job.kind, ingesting=not job.ingest_complete),
        "retried": job.retried,
        "request_id": job.request_id,
        "traceparent": job.traceparent,
        "ip_address": job.ip_address,
        "file_id": job.file_id,
        "fetch": await db.read(ingestion.read_fetch_progress, job.id),
    }


async def read_source_download_view(db: Database, job: Job) -> FetchOut | None:
    """Return the download of a job's source; None if the source has no URL."""
    state = await db.read(ingestion.read_fetch_progress, job.id)
    return None if state is None else FetchOut.model_validate(state, from_attributes=True)


def build_operation_out(operation: BulkOperation) -> OperationOut:
    out = OperationOut.model_validate(operation, from_attributes=True)
    out.predicate.pop(QUOTA_KEY, None)
    return out
