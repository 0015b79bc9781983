"""Streams: what changes, as it changes."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from tidemill.api.guard import Guarded, Me, Permission, allow, is_welcome
from tidemill.api.hub import OVERLAP, Watcher, print_of
from tidemill.api.lookup import OwnJob, own_job_id, own_scope
from tidemill.api.schemas.base import Query as Parameters
from tidemill.api.schemas.base import UserId
from tidemill.api.state import Serving
from tidemill.api.views import job_out
from tidemill.domain.errors import InvalidInput
from tidemill.domain.identity import Principal
from tidemill.domain.job import Job

router = APIRouter(tags=["events"], route_class=Guarded)
RETRY_MS = 2_000
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)  # there is room before it, to look back
LOOK_AGAIN_S = 10.0
OPEN = ServerSentEvent(comment="open")  # at once: the head of the answer leaves with the first line of its body
EXAMPLE = 'event: job\nid: 891f3c69e890d0e2\nretry: 2000\ndata: {"key": "J20261115_000777", "status": "running"}\n\n'
LastId = Annotated[
    str | None, Header(alias="Last-Event-ID", max_length=100, description="Where a broken stream goes on")
]
_stream: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events; the data of one is a JobOut",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "example": EXAMPLE}},
    }
}


class TabQuery(Parameters):
    user_id: UserId = "me"
    job: Annotated[
        str | None,
        Field(max_length=64, description="The id or key of a job that is told of in any case", examples=[None]),
    ] = None


async def _of_job(job: OwnJob, me: Me, here: Serving, last_event_id: LastId = None) -> AsyncIterator[Watcher]:
    with here.hub.room(me.user_id):
        yield Watcher(me.user_id, job_id=job.id, sent={job.id: last_event_id} if last_event_id else {})


async def _of_tab(
    query: Annotated[TabQuery, Query()], me: Me, here: Serving, last_event_id: LastId = None
) -> AsyncIterator[Watcher]:
    owner_id = await own_scope(here.db, me, query.user_id)
    also = None if query.job is None else await own_job_id(query.job, me, here.db)
    seen = _moment(last_event_id)
    with here.hub.room(me.user_id):
        yield Watcher(me.user_id, owner_id=owner_id, also=also, since=None if seen is None else seen - OVERLAP)


@router.get("/jobs/{job}/events", response_class=EventSourceResponse, **allow(Permission.USER, 404, also=_stream))
async def watch_job(
    watcher: Annotated[Watcher, Depends(_of_job)], me: Me, request: Request, here: Serving
) -> AsyncIterator[ServerSentEvent]:
    """A job's counts and status whenever they change, at most twice a second, until it is deleted.

    The id of an event stands for what it shows: with it as `Last-Event-ID` only news are sent.
    """
    yield OPEN
    async for one in _news(here.hub.watch(watcher), request, me):
        yield _event(one, print_of(one))
    if watcher.is_gone:
        yield ServerSentEvent(event="deleted", data={"id": str(watcher.job_id)})


@router.get("/events", response_class=EventSourceResponse, **allow(Permission.USER, 404, also=_stream))
async def watch_jobs(
    watcher: Annotated[Watcher, Depends(_of_tab)], me: Me, request: Request, here: Serving
) -> AsyncIterator[ServerSentEvent]:
    """Every job of yours that changes, for a whole tab: first those that are open, then news.

    Of the open ones the newest hundred are followed; a `job` that is named is followed in any case.
    An event's id is a moment: with it as `Last-Event-ID`, jobs that were closed since are told of too.
    """
    yield OPEN
    async for one in _news(here.hub.watch(watcher), request, me):
        yield _event(one, one.updated_at.isoformat() if one.updated_at else "")


async def _news(looks: AsyncIterator[list[Job]], request: Request, me: Principal) -> AsyncIterator[Job]:
    """As long as whoever opened the stream would still be let in."""
    checked = time.monotonic()
    async for jobs in looks:
        for job in jobs:
            yield job
        if time.monotonic() - checked > LOOK_AGAIN_S:
            if not await is_welcome(request, me):
                return
            checked = time.monotonic()


def _event(job: Job, id_: str) -> ServerSentEvent:
    return ServerSentEvent(event="job", id=id_, data=job_out(job).model_dump(mode="json"), retry=RETRY_MS)


def _moment(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidInput("Last-Event-ID is not an id of this stream") from None
    if found is None:
        return None
    return max(EARLIEST, found.replace(tzinfo=UTC) if found.tzinfo is None else found)
