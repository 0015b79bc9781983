"""What the house knows, in the shapes of answers."""

from dataclasses import asdict

from tidemill.api.schemas import Counts, JobOut, OperationOut
from tidemill.domain.job import Job
from tidemill.store.bulk import Operation

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
        links={"self": here} | {name: f"{here}/{name}" for name in LINKS},
    )


def operation_out(operation: Operation) -> OperationOut:
    return OperationOut.model_validate(operation, from_attributes=True)
