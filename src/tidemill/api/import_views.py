"""Imports in the shapes of answers."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any
from uuid import UUID

from tidemill.api.schemas.imports import EffectsOut, ImportDetail, ImportOut
from tidemill.api.schemas.jobs import Counts, Rates
from tidemill.domain.job import Job
from tidemill.operations.import_promote import KEY as PROMOTE
from tidemill.store import imports, jobs, samples
from tidemill.store.database import Database
from tidemill.store.imports import Origin
from tidemill.store.submit import find_by_key

ROUTE = "imports"
LINKS = ("errors", "errors.csv", "errors.ndjson", "fixes", "cancel", "pause", "resume", "reprocess")


async def imports_out(db: Database, found: Sequence[Job]) -> list[ImportOut]:
    origins = await db.run(imports.origins, [job.id for job in found]) if found else {}
    return [_out(job, origins.get(job.id)) for job in found]


async def import_now(db: Database, job_id: UUID) -> ImportOut:
    (found,) = await imports_out(db, [await db.run(jobs.get, job_id)])
    return found


async def import_detail(db: Database, job: Job) -> ImportDetail:
    origin = (await db.run(imports.origins, [job.id])).get(job.id)
    source, plan, words = (origin.source if origin else None) or {}, _plan(job), _words(job)
    return ImportDetail(
        **_out(job, origin).model_dump(),
        rates=Rates(**asdict(await db.run(samples.rates_of, job))),
        effects=EffectsOut(**await db.run(imports.effects, job.id)),
        errors=job.codes,
        layout=job.params.get("layout") or source.get("layout") or {},
        columns=list(plan.get("columns") or ()),
        mapping=_mapping(plan) or words.get("mapping") or {},
        duplicates=words.get("duplicates", "error"),
        resource_key=list(_resource(job).get("key") or ()),
        policy=job.policy,
        file_id=job.file_id,
        promoted_from=source.get("fixes_of"),
        promoted_to=await _promoted(db, job) if words.get("validate_only") else None,
    )


async def _promoted(db: Database, trial: Job) -> UUID | None:
    found = await db.run(find_by_key, trial.owner_id, f"{PROMOTE} {trial.id}")
    return None if found is None else UUID(str(found["id"]))


def _out(job: Job, origin: Origin | None) -> ImportOut:
    words, counts = _words(job), job.counts
    here = f"/v1/imports/{job.id}"
    promote = {"promote": f"{here}/promote"} if words.get("validate_only") else {}
    return ImportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_given_key(origin.idem_key if origin else None),
        resource_type=_resource(job).get("name") or "",
        file_name=((origin.source if origin else None) or {}).get("name") or None,
        mode=words.get("mode", "insert"),
        validate_only=words.get("validate_only", False),
        status=job.status,
        total_records=counts.total,
        processed_records=counts.processed,
        successful_records=counts.done,
        error_records=counts.failed,
        failure_reason=job.failure_reason,
        counts=Counts(**asdict(counts)),
        user_id=job.owner_id,
        created_at=job.created_at,
        started_at=origin.started_at if origin else None,
        completed_at=job.closed_at,
        links={"self": here, "job": f"/v1/jobs/{job.id}"} | {name: f"{here}/{name}" for name in LINKS} | promote,
    )


def _given_key(key: str | None) -> str | None:
    """The key as it was given: ours say first which route they are of."""
    if key is None or key.startswith(f"{PROMOTE} "):
        return None
    return key.removeprefix(f"{ROUTE} ")


def _plan(job: Job) -> dict[str, Any]:
    return job.params.get("plan") or {}


def _mapping(plan: dict[str, Any]) -> dict[str, str]:
    """In the order of the file."""
    mapping: dict[str, str] = plan.get("mapping") or {}
    return {column: mapping[column] for column in plan.get("columns") or () if column in mapping} | mapping


def _words(job: Job) -> dict[str, Any]:
    """The plan's, or the request's, of a file that nobody has seen yet."""
    return _plan(job) or job.params.get("request") or {}


def _resource(job: Job) -> dict[str, Any]:
    return _plan(job).get("resource") or job.params.get("resource") or {}
