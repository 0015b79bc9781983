"""Builds the API responses of imports."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated
from uuid import UUID

from fastapi import Depends

from tidemill.core.job import Job
from tidemill.core.kinds import IMPORT_KIND as IMPORT
from tidemill.imports import import_records
from tidemill.imports.dry_run_promotion import PROMOTE_ACTION as PROMOTE
from tidemill.imports.dry_run_promotion import find_promoted_job_id
from tidemill.imports.import_plan import ImportParams, ImportPlan
from tidemill.imports.import_records import ImportOrigin
from tidemill.imports.schemas import EffectsOut, ImportDetail, ImportOut
from tidemill.jobs import queries
from tidemill.jobs.job_views import read_source_download_view
from tidemill.jobs.route_dependencies import JobName, get_job_if_rerun_allowed, read_visible_job, require_job_of_kind
from tidemill.jobs.schemas import ItemCountsOut, RatesOut
from tidemill.rest.auth import CurrentUser
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep

IMPORT_KEY_PREFIX = "imports"
IMPORT_LINKS = (
    "errors",
    "errors.csv",
    "errors.ndjson",
    "errors.xlsx",
    "fixes",
    "repairs",
    "cancel",
    "pause",
    "resume",
    "reprocess",
)


async def read_import_views(db: DatabaseDep, found: Sequence[Job]) -> list[ImportOut]:
    origins = await db.read(import_records.find_import_origins, [job.id for job in found]) if found else {}
    return [_build_import_out(job, origins.get(job.id)) for job in found]


async def read_import_view(db: DatabaseDep, job_id: UUID) -> ImportOut:
    (view,) = await read_import_views(db, [await queries.get_job(db, job_id)])
    return view


async def read_import_detail(db: DatabaseDep, job: Job) -> ImportDetail:
    origin = (await db.read(import_records.find_import_origins, [job.id])).get(job.id)
    source, params = origin.source if origin else None, ImportParams.from_json(job.params)
    plan, plan_or_request, layout = params.plan, params.plan_or_request, params.layout or (source and source.layout)
    return ImportDetail(
        **_build_import_out(job, origin).model_dump(),
        rates=RatesOut(**asdict(await queries.get_job_rates(db, job))),
        effects=EffectsOut(**await db.read(import_records.sum_import_effects, job.id)),
        created_references=await db.read(import_records.count_created_references, job.id),
        errors=job.codes,
        rows_by_error=await db.read(import_records.count_rows_by_error, job.id),
        dismissed_by_error=await db.read(import_records.count_dismissed_rows_by_error, job.id),
        layout=layout.to_json() if layout else {},
        columns=list(plan.columns) if plan else [],
        mapping=plan.ordered_mapping if plan else plan_or_request.mapping,
        translations=plan_or_request.translations,
        formats=plan_or_request.formats,
        lookups=_list_lookups(plan),
        create_missing=[one.field for one in plan.lookups if one.create] if plan else [],
        assumed=list(plan.assumed) if plan else [],
        constants=plan_or_request.constants,
        computed=plan_or_request.computed,
        skip=list(plan_or_request.skip),
        duplicates=plan_or_request.duplicates,
        undo=plan is not None and plan.is_undoable,
        resource_key=list(params.target.key) if params.target else [],
        policy=job.policy,
        file_id=job.file_id,
        promoted_from=UUID(source.fixes_of) if source and source.fixes_of else None,
        fetch=await read_source_download_view(db, job),
        promoted_to=await find_promoted_job_id(db, job) if plan_or_request.validate_only else None,
    )


def _list_lookups(plan: ImportPlan | None) -> dict[str, list[str]]:
    return {one.field: list(one.columns) for one in plan.lookups} if plan else {}


def _build_import_out(job: Job, origin: ImportOrigin | None) -> ImportOut:
    params, counts = ImportParams.from_json(job.params), job.counts
    options = params.plan_or_request
    here = f"/v1/imports/{job.id}"
    promote = {"promote": f"{here}/promote"} if options.validate_only else {}
    return ImportOut(
        job_id=job.id,
        key=job.key,
        idempotency_key=_get_client_idempotency_key(origin.idem_key if origin else None),
        resource_type=params.target.name if params.target else "",
        file_name=(origin.source.name or None) if origin and origin.source else None,
        mode=options.mode,
        validate_only=options.validate_only,
        status=job.status,
        total_records=counts.total,
        processed_records=counts.processed,
        successful_records=counts.done,
        error_records=counts.failed,
        failure_reason=job.failure_reason,
        counts=ItemCountsOut(**asdict(counts)),
        user_id=job.owner_id,
        created_at=job.created_at,
        started_at=job.started_at,
        completed_at=job.closed_at,
        duration_s=job.duration_s,
        idle_s=job.idle_s,
        links={"self": here, "job": f"/v1/jobs/{job.id}"} | {name: f"{here}/{name}" for name in IMPORT_LINKS} | promote,
    )


def _get_client_idempotency_key(key: str | None) -> str | None:
    """Return the key that the client sent, without the prefix of the route; None for a promotion."""
    if key is None or key.startswith(f"{PROMOTE} "):
        return None
    return key.removeprefix(f"{IMPORT_KEY_PREFIX} ")


async def read_visible_import(import_id: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return require_job_of_kind(await read_visible_job(import_id, me, db), IMPORT, "import", import_id)


VisibleImport = Annotated[Job, Depends(read_visible_import)]


async def get_import_if_rerun_allowed(import_id: VisibleImport, me: CurrentUser, runtime: RuntimeDep) -> Job:
    return await get_job_if_rerun_allowed(import_id, me, runtime)


RerunnableImport = Annotated[Job, Depends(get_import_if_rerun_allowed)]
