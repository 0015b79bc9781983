"""What the house knows, in the shapes of answers."""

from dataclasses import asdict

from tidemill.api.schemas.jobs import Counts, JobDetail, JobOut, Rates
from tidemill.api.schemas.operations import OperationOut
from tidemill.domain.export import KIND
from tidemill.domain.job import Job
from tidemill.store import results, samples, workers
from tidemill.store.bulk import Operation
from tidemill.store.database import Database

LINKS = ("items", "batches", "activity", "events", "kickoff", "pause", "resume", "cancel", "reprocess", "export")


def job_out(job: Job) -> JobOut:
    here = f"/v1/jobs/{job.id}"
    return JobOut(
        id=job.id,
        key=job.key,
        kind=job.kind,
        user_id=job.owner_id,
        status=job.status,
        counts=Counts(**asdict(job.counts)),
        ingest_complete=job.ingest_complete,
        priority=job.priority,
        failure_reason=job.failure_reason,
        created_at=job.created_at,
        updated_at=job.updated_at,
        closed_at=job.closed_at,
        links={"self": here} | {name: f"{here}/{name}" for name in LINKS} | _download(job),
    )


def _download(job: Job) -> dict[str, str]:
    return {"download": f"/v1/exports/{job.id}/download"} if job.kind == KIND else {}


async def job_detail(db: Database, job: Job) -> JobDetail:
    rates = await db.run(samples.rates_of, job)
    columns = job.result_columns or (await db.run(results.columns, job.id)).names
    return JobDetail(
        **job_out(job).model_dump(),
        params=job.params,
        policy=job.policy,
        errors=job.codes,
        columns=list(columns),
        rates=Rates(**asdict(rates)),
        adaptive=await db.run(workers.adaptive_state, job.kind),
        retried=job.retried,
        request_id=job.request_id,
        traceparent=job.traceparent,
        ip_address=job.ip_address,
        file_id=job.file_id,
    )


def operation_out(operation: Operation) -> OperationOut:
    return OperationOut.model_validate(operation, from_attributes=True)
