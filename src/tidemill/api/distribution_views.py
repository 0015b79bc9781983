"""Distributions in the shapes of answers."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tidemill.api.schemas.distributions import DatasetOut, InputFieldOut
from tidemill.domain.distribution import Dataset
from tidemill.domain.job import Job
from tidemill.operations.distributions import request_of
from tidemill.store import artifacts
from tidemill.store.artifacts import Files
from tidemill.store.database import Database

LINKS = ("cancel", "redrive")


async def distributions_out(db: Database, found: Sequence[Job]) -> list[dict[str, Any]]:
    files = await db.run(artifacts.files_of, [job.id for job in found]) if found else {}
    return [_out(job, files.get(job.id, Files())) for job in found]


async def distribution_out(db: Database, job: Job) -> dict[str, Any]:
    (found,) = await distributions_out(db, [job])
    return found


def content_out(told: dict[str, Any]) -> dict[str, Any]:
    """The input's own fields first: none of them has a name of ours."""
    return dict(told["input"]) | {name: value for name, value in told.items() if name != "input"}


def dataset_out(dataset: Dataset) -> DatasetOut:
    return DatasetOut(
        name=dataset.name,
        fields=[InputFieldOut(name=one.name, type=one.type, required=one.required) for one in dataset.fields],
        date_field=dataset.date_field,
        format=dataset.format.value,
        compression=dataset.compression.value,
    )


def _out(job: Job, files: Files) -> dict[str, Any]:
    request, here = request_of(job), f"/v1/distributions/{job.id}"
    return {
        "job_id": job.id,
        "key": job.key,
        "dataset": request.dataset,
        "status": job.status,
        **asdict(job.counts),
        "files_generated": files.generated,
        "files_reused": files.reused,
        "error_message": "; ".join(filter(None, (job.failure_reason, files.failure))) or None,
        "reuse": asdict(request.reuse),
        "format": request.format,
        "compression": request.compression,
        "policy": job.policy,
        "user_id": job.owner_id,
        "created_at": job.created_at,
        "started_at": files.started_at,
        "completed_at": job.closed_at,
        "links": {"self": here, "job": f"/v1/jobs/{job.id}"} | {name: f"{here}/{name}" for name in LINKS},
    }
