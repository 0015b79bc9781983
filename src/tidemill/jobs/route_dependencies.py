"""FastAPI dependencies of job routes: the jobs, items and users of a request, if the caller may see them."""

import re
from collections.abc import Sequence
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Path, Request

from tidemill.core.errors import Forbidden, InvalidInput, UnknownJob
from tidemill.core.job import Job
from tidemill.core.list_pages import Page
from tidemill.core.principal import Principal
from tidemill.core.row_ranges import SeqRange, merge_ranges
from tidemill.jobs import queries
from tidemill.jobs.bulk_operation_schemas import ItemChoiceIn
from tidemill.jobs.reprocessing import authorize_rerun
from tidemill.jobs.schemas import FileReferenceIn, JobFilterQuery
from tidemill.jobs.staged_files import FileReference
from tidemill.jobs.submission import Submission
from tidemill.rest import dependencies
from tidemill.rest.auth import CurrentUser, get_client_ip
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep, get_runtime
from tidemill.rest.request_body import make_validation_error
from tidemill.rest.schema_types import JOB_NAME_PATTERN

_JOB_NAME_REGEX = re.compile(JOB_NAME_PATTERN)
JobName = Annotated[str, Path(max_length=64, description="Id or key of the job", examples=["J20261115_000777"])]


async def read_visible_job_id(job: JobName, me: CurrentUser, db: DatabaseDep) -> UUID:
    """Return the id of a job without reading its counts."""
    return await queries.find_job_id(db, validate_job_name(job), get_owner_scope(me))


async def read_visible_job(job: JobName, me: CurrentUser, db: DatabaseDep) -> Job:
    return await queries.get_job_by_name(db, validate_job_name(job), get_owner_scope(me))


async def resolve_filtered_job_id(db: DatabaseDep, name: str | None, owner_id: int | None) -> UUID | None:
    """Return the job id of a filter by key or id. An id is not looked up."""
    if name is None:
        return None
    return await queries.find_job_id(db, name, owner_id) if "_" in name else UUID(name)


def validate_job_name(name: str) -> str:
    """Return the name if it is a complete id or key; otherwise raise UnknownJob."""
    if not _JOB_NAME_REGEX.fullmatch(name):
        raise UnknownJob(f'Unknown job "{name}"')
    return name


def get_owner_scope(me: Principal) -> int | None:
    """Return the owner whose jobs the caller may see; None for all owners."""
    return None if me.is_admin else me.user_id


VisibleJobId = Annotated[UUID, Depends(read_visible_job_id)]
VisibleJob = Annotated[Job, Depends(read_visible_job)]


def require_job_of_kind(job: Job, kind: str, label: str, name: str) -> Job:
    if job.kind != kind:
        raise UnknownJob(f'Unknown {label} "{name}"')
    return job


async def get_job_if_rerun_allowed(job: VisibleJob, me: CurrentUser, runtime: RuntimeDep) -> Job:
    await authorize_rerun(runtime, me, job)
    return job


RunnableJob = Annotated[Job, Depends(get_job_if_rerun_allowed)]


async def list_jobs_by_query(
    db: DatabaseDep, owner_id: int | None, query: JobFilterQuery, kind: str | None
) -> Page[Job]:
    """Return a page of jobs that match a query, of one kind or of all kinds."""
    return await queries.list_jobs(
        db,
        owner_id=owner_id,
        statuses=query.statuses,
        kind=kind,
        created_from=query.created_from,
        created_to=query.created_to,
        q=query.q,
        search=query.search,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )


async def resolve_owner_filter(db: DatabaseDep, me: Principal, user_id: str) -> int | None:
    """Return the owner id for ``me``; for admins also for ``all`` (None) or a user's name or id.

    Raises:
        Forbidden: The caller is not an admin and requests another user.
    """
    if user_id in ("me", me.name, str(me.user_id)):
        return me.user_id
    if not me.is_admin:
        raise Forbidden("Only an admin can see the jobs of other users")
    return None if user_id == "all" else await queries.find_owner_id(db, user_id)


def make_submission_from_request(request: Request, me: Principal, **fields: Any) -> Submission:
    return Submission(
        kind="",
        **fields,
        owner_id=me.user_id,
        request_id=request.state.request_id,
        traceparent=request.state.traceparent,
        ip_address=get_client_ip(request),
        quota=get_runtime(request).settings.default_quota,
    )


def make_file_reference(source: FileReferenceIn, me: Principal) -> FileReference:
    """Return the file that a request refers to; InvalidInput unless it names exactly one."""
    if (source.name is None) != (source.path is None):
        raise InvalidInput('Invalid "source": a file in a folder or bucket needs both "name" and "path"')
    if [source.url, source.file_id, source.name].count(None) != 2:  # noqa: PLR2004
        raise InvalidInput('Invalid "source": set only "url", only "file_id", or both "name" and "path"')
    location = {"url": source.url, "file_id": source.file_id, "name": source.name, "path": source.path}
    return FileReference(**location, role=me.role, owner_id=get_owner_scope(me))


def parse_item_ids(ids: Sequence[str], field: str) -> list[tuple[UUID, int]]:
    """Parse item ids from a field of the body to job ids and seqs."""
    parsed = [_parse_item_id(text) for text in ids]
    _reject_invalid_item_ids(ids, field, [item is not None for item in parsed], '"{}" is not an item id')
    return [item for item in parsed if item is not None]


def parse_item_seqs(ids: Sequence[str], field: str, job_id: UUID) -> list[int]:
    """Return the seqs of items of this job; items of another job are a validation error."""
    items = parse_item_ids(ids, field)
    _reject_invalid_item_ids(ids, field, [job == job_id for job, _ in items], '"{}" is an item of another job')
    return [seq for _, seq in items]


def _parse_item_id(text: str) -> tuple[UUID, int] | None:
    job, _, seq = text.partition(":")
    try:
        return UUID(job), int(seq)
    except ValueError:
        return None


def _reject_invalid_item_ids(ids: Sequence[str], field: str, are_valid: Sequence[bool], message: str) -> None:
    invalid = [(at, text) for at, (text, is_valid) in enumerate(zip(ids, are_valid, strict=True)) if not is_valid]
    if invalid:
        raise make_validation_error([(("body", field, at), message.format(text)) for at, text in invalid])


def parse_item_selection(body: ItemChoiceIn, job_id: UUID) -> tuple[list[int] | None, tuple[SeqRange, ...]]:
    """Return the selected seqs, None for all items, and the selected ranges of seqs."""
    seqs = None if body.item_ids is None else parse_item_seqs(body.item_ids, "item_ids", job_id)
    if body.ranges is None:
        return seqs, ()
    return seqs or [], merge_ranges(body.ranges)


ItemSeq = Annotated[int, Path(ge=0, le=2**62, description="Number of the item in its job, from 0")]
