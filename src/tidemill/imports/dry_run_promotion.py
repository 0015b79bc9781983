"""Promotes a dry run to an import of the same file, with the same plan and the fixes made since."""

from dataclasses import replace
from uuid import UUID

import msgspec

from tidemill.core.errors import Conflict, QuotaExceeded, Unavailable, UnknownFile, UnknownJob
from tidemill.core.input_source import SourceReference
from tidemill.core.job import Job
from tidemill.core.json_input import JsonObject
from tidemill.core.kinds import IMPORT_KIND
from tidemill.core.principal import Role
from tidemill.files.blobs.blob_store import Blob
from tidemill.imports import import_records
from tidemill.imports.import_plan import ImportPlan, check_table_privileges
from tidemill.imports.import_submission import SubmittedImport
from tidemill.imports.lookups import make_lookup_planner
from tidemill.imports.undo_log import check_undo_is_possible
from tidemill.imports.use_cases import LOCAL_IMPORT
from tidemill.jobs.staged_files import make_staged_files
from tidemill.jobs.submission import report_submitted_if_new
from tidemill.runtime import Runtime
from tidemill.store import item_fixes, job_records
from tidemill.store.database import Database, is_transient
from tidemill.store.job_submission import (
    Submission,
    build_submission_steps,
    find_job_by_idempotency_key,
    run_steps_async,
)
from tidemill.store.users import get_user
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import make_resource_registry

PROMOTE_ACTION = "promote"


def _get_promotable_plan(job: Job) -> ImportPlan:
    """Return the plan of a closed dry run; Conflict if the job is not a dry run or not closed."""
    if "plan" not in job.params:
        raise Conflict(f"Cannot promote import {job.key}: the job is {job.status}, and no worker read its file")
    plan = msgspec.convert(job.params["plan"], ImportPlan)
    if not plan.validate_only:
        raise Conflict(f"Cannot promote import {job.key}: it is not a dry run (validate_only)")
    if not job.is_closed:
        raise Conflict(f"Cannot promote import {job.key} while it is {job.status}. Wait until it is closed.")
    return plan


async def _check_forced_rules_unchanged(db: Database, job: Job, plan: ImportPlan, resource: Resource) -> None:
    """Raise Conflict if the dry run lacks a rule that the resource has now.

    A field that the resource did not set then can have a value that the caller of the dry run chose.
    """
    forced = plan.resource.constants
    expected: dict[str, str] = {}
    for name, source in resource.constants_from.items():
        if source == "owner_id":
            expected[name] = str(job.owner_id)
        elif source == "owner":
            expected[name] = (await db.run(get_user, str(job.owner_id))).name
    is_same = (
        plan.constants.items() >= resource.constants.items()
        and forced.keys() >= resource.constants_from.keys()
        and forced.items() >= expected.items()
        and plan.computed.items() >= resource.computed.items()
        and set(plan.skip) >= set(resource.skip)
    )
    if not is_same:
        raise Conflict(
            f'The constants, computed columns or skip rules of resource "{resource.name}" have changed since the dry '
            "run. Import the file again."
        )


async def promote_dry_run(
    runtime: Runtime, job: Job, *, by: int, role: Role | None, submission: Submission = LOCAL_IMPORT
) -> SubmittedImport:
    """Create the import that a dry run has tested, or return the one that an earlier promotion created.

    ``role`` is the caller's; None is a local caller, who may import into every table.

    Raises:
        Conflict: The job is not a closed dry run, or its file no longer exists.
        Forbidden, UnknownResource: The role has no write access to the resource.
    """
    plan = replace(_get_promotable_plan(job), validate_only=False)
    db, staged_files, resources = runtime.db, runtime.get(make_staged_files), runtime.get(make_resource_registry)
    if role is None:
        resource = await resources.get_resource(db, plan.resource.name, any_table=True)
    else:
        resource = await resources.get_writable_resource(db, role, plan.resource.name)
        await make_lookup_planner(runtime, role).check_allowed(plan.resource)
    await _check_forced_rules_unchanged(db, job, plan, resource)
    key = f"{PROMOTE_ACTION} {job.id}"
    promoted_id = await find_promoted_job_id(db, job)
    if promoted_id is not None:
        return SubmittedImport(promoted_id, is_new=False)
    if job.purged_at is not None:
        raise Conflict(f"Cannot promote import {job.key}: the import was purged, and its file was deleted")
    await check_table_privileges(db, plan)
    if plan.is_undoable:
        await check_undo_is_possible(db, plan)
    origin = (await db.read(import_records.find_import_origins, [job.id])).get(job.id)
    if origin is None:
        raise UnknownJob(f"Job {job.id} does not exist")
    try:
        blob = await staged_files.copy_stored_file(str(job.file_id))
    except UnknownFile:
        raise Conflict(f"Cannot promote import {job.key}: its file no longer exists") from None
    spec = replace(
        submission,
        kind=IMPORT_KIND,
        owner_id=job.owner_id,
        params=job.params | {"plan": msgspec.to_builtins(plan)} | _build_promoted_request_params(job),
        policy=job.policy,
        priority=job.priority,
        source=_build_promoted_source(origin.source, blob, job),
        sparse=True,
        requires=plan.resource.requirements,
        file_id=blob.id,
        file_bytes=blob.size,
        idem_key=key,
        idem_print=job.id.bytes,
    )
    try:
        job_id, is_new = await _submit_promoted_with_fixes(db, spec, job, by)
    except (UnknownJob, Conflict, QuotaExceeded):
        await staged_files.discard(blob.id)
        raise
    if not is_new:
        await staged_files.discard(blob.id)
    return SubmittedImport(job_id, is_new)


async def find_promoted_job_id(db: Database, dry_run: Job) -> UUID | None:
    """Return the import that this dry run was promoted to, if any."""
    promoted = await db.run(find_job_by_idempotency_key, dry_run.owner_id, f"{PROMOTE_ACTION} {dry_run.id}")
    return None if promoted is None else promoted.id


async def _submit_promoted_with_fixes(db: Database, spec: Submission, dry_run: Job, by: int) -> tuple[UUID, bool]:
    """One transaction creates the job and copies the fixes, so that no worker reads the file without them."""
    try:
        async with db.transaction(bounded=False) as conn:
            job_id, is_new = await run_steps_async(conn, build_submission_steps(spec, ()))
            if is_new:
                fixes = await item_fixes.copy_item_fixes(conn, dry_run.id, job_id)
                await job_records.add_activity(conn, dry_run.id, by, PROMOTE_ACTION, job=str(job_id), fixes=fixes)
    except Exception as error:
        if not is_transient(error):
            raise
        raise Unavailable("The database is not available. It is safe to retry the request.") from error
    report_submitted_if_new(job_id, spec, is_new=is_new)
    return job_id, is_new


def _build_promoted_source(dry_run_source: SourceReference | None, blob: Blob, dry_run: Job) -> SourceReference:
    source = dry_run_source or SourceReference(blob=blob.id)
    return replace(source, blob=blob.id, fixes_of=str(dry_run.id))


def _build_promoted_request_params(job: Job) -> dict[str, JsonObject]:
    return {"asked": job.params.get("asked", {}) | {"validate_only": False}}
