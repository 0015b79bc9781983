"""From a trial to the real thing: the same file, the same plan, with every correction made since; and it writes."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import msgspec

from tidemill.domain.errors import Conflict, Unavailable, UnknownFile, UnknownJob
from tidemill.domain.importing import KIND, ImportPlan
from tidemill.domain.job import Job
from tidemill.operations.imports import insist_on_rights
from tidemill.operations.incoming import Incoming
from tidemill.operations.submit import tell_submitted
from tidemill.store import activity, fix, imports
from tidemill.store.database import Database, is_transient
from tidemill.store.submit import Submission, find_by_key, run_async, submission

KEY = "promote"


def plan_of(job: Job) -> ImportPlan:
    """What a closed trial has planned; Conflict if it is no such thing."""
    if "plan" not in job.params:
        raise Conflict(f"import {job.key} is {job.status}: its file was never read")
    plan = msgspec.convert(job.params["plan"], ImportPlan)
    if not plan.validate_only:
        raise Conflict(f"import {job.key} is no trial: only one with validate_only can be promoted")
    if not job.is_closed:
        raise Conflict(f"import {job.key} is {job.status}: it can be promoted when it is closed")
    return plan


async def promote(db: Database, incoming: Incoming, job: Job, asked: Submission, *, by: int) -> tuple[UUID, bool]:
    """The live job of a trial, and whether it is new: there is one, however often it is asked for."""
    plan = replace(plan_of(job), validate_only=False)
    key = f"{KEY} {job.id}"
    found = await db.run(find_by_key, job.owner_id, key)
    if found is not None:
        return UUID(str(found["id"])), False
    if job.purged_at is not None:
        raise Conflict(f"import {job.key} was purged: its file is gone")
    await insist_on_rights(db, plan)
    origin = (await db.run(imports.origins, [job.id])).get(job.id)
    if origin is None:
        raise UnknownJob(f"there is no job {job.id}")
    try:
        blob = await incoming.link(str(job.file_id))
    except UnknownFile:
        raise Conflict(f"the file of import {job.key} is gone") from None
    spec = replace(
        asked,
        kind=KIND,
        owner_id=job.owner_id,
        params=job.params | {"plan": msgspec.to_builtins(plan)} | _asked(job),
        policy=job.policy,
        priority=job.priority,
        source=(origin.source or {}) | {"blob": blob.id, "fixes_of": str(job.id)},
        sparse=True,
        file_id=blob.id,
        idem_key=key,
        idem_print=job.id.bytes,
    )
    try:
        job_id, is_new = await _submit(db, spec, job, by)
    except (UnknownJob, Conflict):
        await incoming.drop(blob.id)
        raise
    if not is_new:
        await incoming.drop(blob.id)
    return job_id, is_new


async def _submit(db: Database, spec: Submission, trial: Job, by: int) -> tuple[UUID, bool]:
    """The corrections are there with the job, before anybody can begin to read its file."""
    try:
        async with db.transaction(bounded=False) as conn:
            job_id, is_new = await run_async(conn, submission(spec, ()))
            if is_new:
                fixes = await fix.carry(conn, trial.id, job_id)
                await activity.add(conn, trial.id, by, KEY, job=str(job_id), fixes=fixes)
    except Exception as error:
        if not is_transient(error):
            raise
        raise Unavailable("the database is not available now; it is safe to ask again") from error
    tell_submitted(job_id, spec, is_new=is_new)
    return job_id, is_new


def _asked(job: Job) -> dict[str, Any]:
    return {"asked": job.params.get("asked", {}) | {"validate_only": False}}
