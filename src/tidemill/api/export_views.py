"""Exports in the shapes of answers."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any
from uuid import UUID

from tidemill.api.schemas.exports import ExportOut
from tidemill.api.schemas.jobs import Counts
from tidemill.api.state import Service
from tidemill.domain.job import Job
from tidemill.domain.status import JobStatus
from tidemill.store import exports, jobs
from tidemill.store.exports import Made

ROUTE = "exports"
OF_JOB = "job"


async def exports_out(here: Service, found: Sequence[Job]) -> list[ExportOut]:
    if not found:
        return []
    made, now = await here.db.run(exports.made, [job.id for job in found]), await here.db.run(jobs.clock)
    return [await asyncio.to_thread(_out, here, job, made.get(job.id), now) for job in found]


async def export_now(here: Service, job_id: UUID) -> ExportOut:
    (found,) = await exports_out(here, [await here.db.run(jobs.get, job_id)])
    return found


def _out(here: Service, job: Job, made: Made | None, now: datetime) -> ExportOut:
    link = f"/v1/exports/{job.id}"
    asked, result, error = _asked(job, made), (made.result if made else None) or {}, made.error if made else None
    is_expired = bool(result.get("expires_at")) and datetime.fromisoformat(result["expires_at"]) <= now
    is_there = bool(job.is_closed and result) and job.status is not JobStatus.CANCELLED and not is_expired
    download = {} if is_expired else {"download": f"{link}/download"}
    return ExportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_given_key(made),
        resource_type=asked.get("resource") or OF_JOB,
        format=asked.get("format") or "csv",
        compression=asked.get("compression") or "none",
        spreadsheet_safe=bool(asked.get("spreadsheet_safe")),
        status=job.status,
        filters=asked.get("filters") or {},
        fields=asked.get("fields") or [],
        order=asked.get("order") or [],
        record_count=result.get("rows"),
        size=result.get("size"),
        sha256=result.get("sha256"),
        file_id=result.get("file_id"),
        file_path=here.blobs.url(result["file_id"]) if is_there else None,
        download_url=f"{link}/download" if is_there else None,
        failure_reason=(error or {}).get("reason") or job.failure_reason,
        counts=Counts(**asdict(job.counts)),
        user_id=job.owner_id,
        started_at=made.started_at if made else None,
        completed_at=job.closed_at,
        created_at=job.created_at,
        expires_at=result.get("expires_at"),
        links={"self": link, "job": f"/v1/jobs/{job.id}", "cancel": f"{link}/cancel"} | download,
    )


def _asked(job: Job, made: Made | None) -> dict[str, Any]:
    """Of a job's results, what was asked for stands in the item."""
    asked: dict[str, Any] = job.params.get("asked") or (made.input if made else None) or {}
    statuses = asked.get("statuses")
    return asked | ({"filters": {"status": {"in": statuses}}} if statuses else {})


def _given_key(made: Made | None) -> str | None:
    """The key as it was given: ours say first which route they are of."""
    key = made.idem_key if made else None
    return key.removeprefix(f"{ROUTE} ") if key is not None and key.startswith(f"{ROUTE} ") else None
