"""From what a request names to what it may see. What belongs to somebody else is not there."""

import re
from collections.abc import Sequence
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Path

from tidemill.api import cursor
from tidemill.api.guard import Me
from tidemill.api.inline import faults
from tidemill.api.problems import Refusal
from tidemill.api.schemas.base import JOB_NAME
from tidemill.api.schemas.jobs import ListQuery
from tidemill.api.schemas.operations import ChosenIn
from tidemill.api.state import Db, Service, Serving
from tidemill.domain.distribution import KIND as DISTRIBUTE
from tidemill.domain.errors import InvalidInput, UnknownJob, UnknownResource
from tidemill.domain.export import KIND as EXPORT
from tidemill.domain.identity import Principal
from tidemill.domain.importing import KIND as IMPORT
from tidemill.domain.job import Job
from tidemill.domain.numbers import Range, merged
from tidemill.domain.page import Page
from tidemill.domain.resource import Resource, may
from tidemill.operations import inspect
from tidemill.store import jobs, users
from tidemill.store.database import Database

_FULL = re.compile(JOB_NAME)
JobName = Annotated[str, Path(max_length=64, description="A job's id or key", examples=["J20261115_000777"])]


async def own_job_id(job: JobName, me: Me, db: Db) -> UUID:
    """Without a look at how far it is."""
    return await db.run(jobs.find, full_name(job), scope_of(me))


async def own_job(job: JobName, me: Me, db: Db) -> Job:
    return await db.run(jobs.get_named, full_name(job), scope_of(me))


async def job_named(db: Database, name: str | None, owner_id: int | None) -> UUID | None:
    """The id of a job that a filter names, by its id or its key; an id is taken as it is."""
    if name is None:
        return None
    return await db.run(jobs.find, name, owner_id) if "_" in name else UUID(name)


def full_name(name: str) -> str:
    """A whole id or key."""
    if not _FULL.fullmatch(name):
        raise UnknownJob(f"there is no job {name!r}")
    return name


def scope_of(me: Principal) -> int | None:
    """Whose jobs somebody may see: their own, or everybody's (None)."""
    return None if me.is_admin else me.user_id


OwnJobId = Annotated[UUID, Depends(own_job_id)]
OwnJob = Annotated[Job, Depends(own_job)]


async def own_import(import_id: JobName, me: Me, db: Db) -> Job:
    return _of_kind(IMPORT, await own_job(import_id, me, db), import_id)


async def own_export(export: JobName, me: Me, db: Db) -> Job:
    return _of_kind(EXPORT, await own_job(export, me, db), export)


async def own_distribution(distribution_id: JobName, me: Me, db: Db) -> Job:
    return _of_kind(DISTRIBUTE, await own_job(distribution_id, me, db), distribution_id)


def _of_kind(kind: str, found: Job, name: str) -> Job:
    if found.kind != kind:
        raise UnknownJob(f"there is no {_WORDS[kind]} {name!r}")
    return found


OwnImport = Annotated[Job, Depends(own_import)]
OwnExport = Annotated[Job, Depends(own_export)]
OwnDistribution = Annotated[Job, Depends(own_distribution)]
_WORDS = {IMPORT: "import", EXPORT: "export", DISTRIBUTE: "distribution"}


async def check_rights(here: Service, me: Principal, job: Job) -> None:
    """Who may no longer read or write what a job reads or writes does not do so by sending its items round again."""
    plan = job.params.get("plan")
    if job.kind == IMPORT and plan:
        await _check_right(here, me, job.kind, plan["resource"]["name"])
    elif job.kind == EXPORT and plan:
        await _check_right(here, me, job.kind, plan["resource"])
    elif job.kind == DISTRIBUTE:
        await _check_right(here, me, job.kind, job.params["dataset"])


async def lost_rights(here: Service, me: Principal) -> list[str]:
    """What the jobs of a user read or write, as ``kind:name``, that they may not read or write any more."""
    lost = []
    for kind, name in await here.db.run(jobs.targets, me.user_id, list(_WORDS)):
        try:
            await _check_right(here, me, kind, name)
        except (Refusal, UnknownResource, InvalidInput):
            lost.append(f"{kind}:{name}")
    return lost


async def _check_right(here: Service, me: Principal, kind: str, name: str) -> None:
    if kind == IMPORT:
        await writable(here, me, name)
    elif kind == EXPORT:
        await readable(here, me, name)
    elif not here.distributions.is_for(me.role, name):
        raise UnknownResource(f"there is no dataset {name!r}")


async def job_to_run(job: OwnJob, me: Me, here: Serving) -> Job:
    await check_rights(here, me, job)
    return job


async def import_to_run(import_id: OwnImport, me: Me, here: Serving) -> Job:
    return await job_to_run(import_id, me, here)


async def distribution_to_run(distribution_id: OwnDistribution, me: Me, here: Serving) -> Job:
    return await job_to_run(distribution_id, me, here)


JobToRun = Annotated[Job, Depends(job_to_run)]
ImportToRun = Annotated[Job, Depends(import_to_run)]
DistributionToRun = Annotated[Job, Depends(distribution_to_run)]


async def list_own(db: Database, owner_id: int | None, query: ListQuery, kind: str | None) -> Page[Job]:
    """A page of the jobs that a query asks for, of one kind or of all."""
    return await inspect.list_jobs(
        db,
        owner_id=owner_id,
        statuses=query.statuses,
        kind=kind,
        created_from=query.created_from,
        created_to=query.created_to,
        q=query.q,
        limit=query.page_size,
        after=cursor.decode(query.after),
    )


async def writable(here: Service, me: Principal, name: str) -> Resource:
    """What somebody may import into. One that may be read but not written is there, and refused; others are not there.

    An admin may name any table besides.
    """
    resource = await here.resources.find(here.db, name, any_table=me.is_admin)
    if may(me.role, resource, "write"):
        return resource
    if may(me.role, resource, "read"):
        raise Refusal(403, f"you may read {name}, not write it")
    raise UnknownResource(f"there is no resource {name!r}")


async def readable(here: Service, me: Principal, name: str) -> Resource:
    """What somebody may export. One that may be written but not read is there, and refused; others are not there.

    An admin may name any table besides.
    """
    resource = await here.resources.find(here.db, name, any_table=me.is_admin, reads=True)
    if may(me.role, resource, "read"):
        return resource
    if may(me.role, resource, "write"):
        raise Refusal(403, f"you may write {name}, not read it")
    raise UnknownResource(f"there is no resource {name!r}")


def places_of(ids: Sequence[str], field: str) -> list[tuple[UUID, int]]:
    """Items by their ids, of a field of the body: their jobs and their places in them."""
    found = [_place_of(text) for text in ids]
    _insist(ids, field, [place is not None for place in found], "{!r} is not the id of an item")
    return [place for place in found if place is not None]


def seqs_of(ids: Sequence[str], field: str, job_id: UUID) -> list[int]:
    """The places of items in this job; those of another one are pointed at."""
    found = places_of(ids, field)
    _insist(ids, field, [job == job_id for job, _ in found], "{!r} is an item of another job")
    return [seq for _, seq in found]


def _place_of(text: str) -> tuple[UUID, int] | None:
    job, _, seq = text.partition(":")
    try:
        return UUID(job), int(seq)
    except ValueError:
        return None


def _insist(ids: Sequence[str], field: str, are_good: Sequence[bool], why: str) -> None:
    wrong = [(at, text) for at, (text, is_good) in enumerate(zip(ids, are_good, strict=True)) if not is_good]
    if wrong:
        raise faults([(("body", field, at), why.format(text)) for at, text in wrong])


def chosen_of(asked: ChosenIn, job_id: UUID) -> tuple[list[int] | None, tuple[Range, ...]]:
    """Items that are chosen by their numbers: single ones, None if all are meant, and ranges of them beside these."""
    seqs = None if asked.item_ids is None else seqs_of(asked.item_ids, "item_ids", job_id)
    if asked.ranges is None:
        return seqs, ()
    return seqs or [], merged(asked.ranges)


async def own_scope(db: Database, me: Principal, user_id: str) -> int | None:
    """Whose work a list is about: ``me``; for admins also ``all`` (None), or somebody by name or id."""
    if user_id in ("me", me.name, str(me.user_id)):
        return me.user_id
    if not me.is_admin:
        raise Refusal(403, "only an admin sees the work of others")
    return None if user_id == "all" else (await db.run(users.find, user_id)).id
