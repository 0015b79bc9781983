"""Processing for the length of a request."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import Field

from tidemill.api.guard import Guarded, Permission, allow
from tidemill.api.leaving import while_there
from tidemill.api.lookup import JobToRun
from tidemill.api.schemas.base import Query as Parameters
from tidemill.api.schemas.jobs import SliceOut
from tidemill.api.state import Serving
from tidemill.domain.errors import Conflict, UnknownKind
from tidemill.domain.status import JobStatus

router = APIRouter(tags=["jobs"], route_class=Guarded)
LONGEST_MS = 60_000
RUNNABLE = (JobStatus.PENDING, JobStatus.INGESTING, JobStatus.RUNNING)


class KickoffQuery(Parameters):
    duration_ms: int = Field(5_000, ge=100, le=LONGEST_MS, description="How long to work at most")


@router.post("/jobs/{job}/kickoff", **allow(Permission.USER, 404, 409))
async def kickoff_job(
    job: JobToRun, query: Annotated[KickoffQuery, Query()], request: Request, here: Serving
) -> SliceOut:
    """Work on the job here and now, with an ordinary lease, for one time-slice; repeat it as you like.

    It ends early when nothing is due. If you go away, what is finished is kept and the rest goes back.
    """
    if here.pool is None:
        raise Conflict("this service has no handlers: start it with `tidemill serve MODULE:NAME`")
    if job.status not in RUNNABLE:
        raise Conflict(f"job {job.key} is {job.status}: there is nothing to work on")
    try:
        found = await while_there(request, here.pool.kickoff(job.id, job.kind, query.duration_ms / 1000))
    except UnknownKind as error:
        raise Conflict(str(error)) from error
    return SliceOut.model_validate(found, from_attributes=True)
