"""Routes that stream changes of jobs as server-sent events."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from tidemill.core.errors import InvalidInput
from tidemill.core.job import Job
from tidemill.core.principal import Principal
from tidemill.jobs.job_feed import JOB_FEED_OVERLAP, JobSubscription, fingerprint_job, make_job_feed
from tidemill.jobs.job_views import build_job_out
from tidemill.jobs.route_dependencies import VisibleJob, read_visible_job_id, resolve_owner_filter
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options, is_still_authorized
from tidemill.rest.dependencies import RuntimeDep
from tidemill.rest.schema_types import QueryModel as Parameters
from tidemill.rest.schema_types import UserFilter
from tidemill.runtime import Runtime

router = APIRouter(tags=["events"], route_class=AuthenticatedRoute)
SSE_RETRY_MS = 2_000
EARLIEST_EVENT_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # leaves room to subtract the overlap
STREAM_REAUTHORIZE_INTERVAL_S = 10.0
# Sent immediately, because the response headers are sent with the first line of the body.
STREAM_OPENED_EVENT = ServerSentEvent(comment="open")
JOB_EVENT_EXAMPLE = (
    'event: job\nid: 891f3c69e890d0e2\nretry: 2000\ndata: {"key": "J20261115_000777", "status": "running"}\n\n'
)
LastEventId = Annotated[
    str | None,
    Header(alias="Last-Event-ID", max_length=100, description="Id of the last received event, to resume a stream"),
]
_EVENT_STREAM_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; the data of each event is a JobOut",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": JOB_EVENT_EXAMPLE}},
    }
}


class JobEventsQuery(Parameters):
    user_id: UserFilter = "me"
    job: Annotated[
        str | None,
        Field(max_length=64, description="Id or key of a job that the stream always includes", examples=[None]),
    ] = None


async def _subscribe_to_job(
    job: VisibleJob, me: CurrentUser, runtime: RuntimeDep, last_event_id: LastEventId = None
) -> AsyncIterator[JobSubscription]:
    with runtime.get(make_job_feed).reserve_stream(me.user_id):
        yield JobSubscription(
            me.user_id, job_id=job.id, sent_fingerprints={job.id: last_event_id} if last_event_id else {}
        )


async def _subscribe_to_owner(
    query: Annotated[JobEventsQuery, Query()], me: CurrentUser, runtime: RuntimeDep, last_event_id: LastEventId = None
) -> AsyncIterator[JobSubscription]:
    owner_id = await resolve_owner_filter(runtime.db, me, query.user_id)
    also = None if query.job is None else await read_visible_job_id(query.job, me, runtime.db)
    seen = _parse_last_event_time(last_event_id)
    with runtime.get(make_job_feed).reserve_stream(me.user_id):
        yield JobSubscription(
            me.user_id, owner_id=owner_id, pinned_job_id=also, since=None if seen is None else seen - JOB_FEED_OVERLAP
        )


@router.get(
    "/jobs/{job}/events",
    response_class=EventSourceResponse,
    **build_route_options(Permission.USER, 404, extra_responses=_EVENT_STREAM_RESPONSE),
)
async def watch_job(
    watcher: Annotated[JobSubscription, Depends(_subscribe_to_job)],
    me: CurrentUser,
    request: Request,
    runtime: RuntimeDep,
) -> AsyncIterator[ServerSentEvent]:
    """Stream the counts and status of a job when they change, at most twice a second, until the job is deleted.

    The event id identifies the state of the job. Send it as `Last-Event-ID` to receive only later changes.
    """
    yield STREAM_OPENED_EVENT
    async for one in _iter_authorized_changes(runtime.get(make_job_feed).stream_changes(watcher), request, me):
        yield _build_job_event(runtime, one, fingerprint_job(one))
    if watcher.is_deleted:
        yield ServerSentEvent(event="deleted", data={"id": str(watcher.job_id)})


@router.get(
    "/events",
    response_class=EventSourceResponse,
    **build_route_options(Permission.USER, 404, extra_responses=_EVENT_STREAM_RESPONSE),
)
async def watch_jobs(
    watcher: Annotated[JobSubscription, Depends(_subscribe_to_owner)],
    me: CurrentUser,
    request: Request,
    runtime: RuntimeDep,
) -> AsyncIterator[ServerSentEvent]:
    """Stream your jobs: first your open jobs, then their changes.

    The stream follows the newest 100 open jobs, and also the job that the parameter `job` names. The event id is a
    timestamp. Send it as `Last-Event-ID` to also receive jobs that closed since then.
    """
    yield STREAM_OPENED_EVENT
    async for one in _iter_authorized_changes(runtime.get(make_job_feed).stream_changes(watcher), request, me):
        yield _build_job_event(runtime, one, one.updated_at.isoformat() if one.updated_at else "")


async def _iter_authorized_changes(
    changes: AsyncIterator[list[Job]], request: Request, me: Principal
) -> AsyncIterator[Job]:
    """Yield changed jobs until the user is no longer authorized."""
    checked = time.monotonic()
    async for jobs in changes:
        for job in jobs:
            yield job
        if time.monotonic() - checked > STREAM_REAUTHORIZE_INTERVAL_S:
            if not await is_still_authorized(request, me):
                return
            checked = time.monotonic()


def _build_job_event(runtime: Runtime, job: Job, id_: str) -> ServerSentEvent:
    return ServerSentEvent(
        event="job", id=id_, data=build_job_out(runtime, job).model_dump(mode="json"), retry=SSE_RETRY_MS
    )


def _parse_last_event_time(text: str | None) -> datetime | None:
    try:
        at = datetime.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidInput("Invalid Last-Event-ID. Send the id of an event from this stream.") from None
    if at is None:
        return None
    return max(EARLIEST_EVENT_TIME, at.replace(tzinfo=UTC) if at.tzinfo is None else at)
