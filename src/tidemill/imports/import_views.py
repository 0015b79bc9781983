"""Imports in the shapes of answers."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends

from tidemill.core.job import Job
from tidemill.core.kinds import IMPORT_KIND as IMPORT
from tidemill.imports import import_records
from tidemill.imports.import_records import ImportOrigin
from tidemill.imports.promotion import PROMOTE_ACTION as PROMOTE
from tidemill.imports.schemas import EffectsOut, ImportDetail, ImportOut
from tidemill.jobs.dependencies import JobName, check_job_kind, load_runnable_job, load_visible_job
from tidemill.jobs.schemas import ItemCountsOut, RatesOut
from tidemill.rest.auth import CurrentUser
from tidemill.rest.runtime import DatabaseDep, RuntimeDep
from tidemill.store import job_records, progress_samples
from tidemill.store.database import Database
from tidemill.store.job_submission import find_by_idempotency_key

IMPORT_KEY_PREFIX = "imports"
IMPORT_LINKS = ("errors", "errors.csv", "errors.ndjson", "fixes", "cancel", "pause", "resume", "reprocess")


async def load_import_views(db: Database, found: Sequence[Job]) -> list[ImportOut]:
    origins = await db.read(import_records.find_import_origins, [job.id for job in found]) if found else {}
    return [_build_import_out(job, origins.get(job.id)) for job in found]


async def load_import_view(db: Database, job_id: UUID) -> ImportOut:
    (found,) = await load_import_views(db, [await db.read(job_records.get_job, job_id)])
    return found


async def load_import_detail(db: Database, job: Job) -> ImportDetail:
    origin = (await db.read(import_records.find_import_origins, [job.id])).get(job.id)
    source, plan, words = (origin.source if origin else None) or {}, _get_plan(job), _get_import_options(job)
    return ImportDetail(
        **_build_import_out(job, origin).model_dump(),
        rates=RatesOut(**asdict(await db.read(progress_samples.read_job_rates, job))),
        effects=EffectsOut(**await db.read(import_records.sum_import_effects, job.id)),
        errors=job.codes,
        layout=job.params.get("layout") or source.get("layout") or {},
        columns=list(plan.get("columns") or ()),
        mapping=_order_mapping(plan) or words.get("mapping") or {},
        duplicates=words.get("duplicates", "error"),
        resource_key=list(_get_resource(job).get("key") or ()),
        policy=job.policy,
        file_id=job.file_id,
        promoted_from=source.get("fixes_of"),
        promoted_to=await _find_promoted_job(db, job) if words.get("validate_only") else None,
    )


async def _find_promoted_job(db: Database, dry_run: Job) -> UUID | None:
    found = await db.run(find_by_idempotency_key, dry_run.owner_id, f"{PROMOTE} {dry_run.id}")
    return None if found is None else UUID(str(found["id"]))


def _build_import_out(job: Job, origin: ImportOrigin | None) -> ImportOut:
    words, counts = _get_import_options(job), job.counts
    here = f"/v1/imports/{job.id}"
    promote = {"promote": f"{here}/promote"} if words.get("validate_only") else {}
    return ImportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_strip_import_key_prefix(origin.idem_key if origin else None),
        resource_type=_get_resource(job).get("name") or "",
        file_name=((origin.source if origin else None) or {}).get("name") or None,
        mode=words.get("mode", "insert"),
        validate_only=words.get("validate_only", False),
        status=job.status,
        total_records=counts.total,
        processed_records=counts.processed,
        successful_records=counts.done,
        error_records=counts.failed,
        failure_reason=job.failure_reason,
        counts=ItemCountsOut(**asdict(counts)),
        user_id=job.owner_id,
        created_at=job.created_at,
        started_at=origin.started_at if origin else None,
        completed_at=job.closed_at,
        links={"self": here, "job": f"/v1/jobs/{job.id}"} | {name: f"{here}/{name}" for name in IMPORT_LINKS} | promote,
    )


def _strip_import_key_prefix(key: str | None) -> str | None:
    """The key as it was given: ours say first which route they are of."""
    if key is None or key.startswith(f"{PROMOTE} "):
        return None
    return key.removeprefix(f"{IMPORT_KEY_PREFIX} ")


def _get_plan(job: Job) -> dict[str, Any]:
    return job.params.get("plan") or {}


def _order_mapping(plan: dict[str, Any]) -> dict[str, str]:
    """In the order of the file."""
    mapping: dict[str, str] = plan.get("mapping") or {}
    return {column: mapping[column] for column in plan.get("columns") or () if column in mapping} | mapping


def _get_import_options(job: Job) -> dict[str, Any]:
    """The plan's, or the request's, of a file that nobody has seen yet."""
    return _get_plan(job) or job.params.get("request") or {}


def _get_resource(job: Job) -> dict[str, Any]:
    return _get_plan(job).get("resource") or job.params.get("resource") or {}


async def load_visible_import(import_id: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return check_job_kind(await load_visible_job(import_id, me, db), IMPORT, "import", import_id)


VisibleImport = Annotated[Job, Depends(load_visible_import)]


async def load_runnable_import(import_id: VisibleImport, me: CurrentUser, runtime: RuntimeDep) -> Job:
    return await load_runnable_job(import_id, me, runtime)


RunnableImport = Annotated[Job, Depends(load_runnable_import)]
