"""Watches: where files come from by themselves, and looking there now."""

import time
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query

from tidemill.api import cursor
from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.schemas.sources import (
    FileOut,
    FilePage,
    FileQuery,
    ScanIn,
    ScanList,
    ScanOut,
    SourceList,
    SourceOut,
    TaskOut,
)
from tidemill.api.state import Service, Serving
from tidemill.domain.errors import Busy
from tidemill.domain.importing import KIND
from tidemill.domain.watching import ImportTask, JobTask, Watch
from tidemill.store import watch_files, watches

router = APIRouter(tags=["sources"], route_class=Guarded)
WAIT_S = 20.0  # what a scan has not got to by then, the next one does
SourceName = Annotated[str, Path(max_length=63, description="A watch's name", examples=["nightly"])]


@router.get("/sources", **allow(Permission.USER))
async def list_sources(me: Me, here: Serving) -> SourceList:
    """Your watches: what they watch, what the last scan found, and what is wrong, if anything is."""
    own = here.scanner.of(me)
    known = await here.db.run(watches.standings, [one.name for one in own])
    return SourceList(sources=[_source(one, known.get(one.name, {})) for one in own])


@router.get("/sources/{source_name}/files", **allow(Permission.USER, 404))
async def list_source_files(
    source_name: SourceName, query: Annotated[FileQuery, Query()], me: Me, here: Serving
) -> FilePage:
    """The files of a watch, the newest change first, each with what has become of it."""
    watch = here.scanner.find(source_name, me)
    after = cursor.decode(query.after)
    page = await here.db.run(watch_files.page, watch.name, state=query.state, limit=query.page_size, after=after)
    found = [FileOut.model_validate(row) for row in page.items]
    return FilePage(files=found, **cursor.next_page(page.after))


@router.post("/ingestion/scan", **allow(Permission.USER, 404))
async def scan_sources(asked: ScanIn, me: Me, here: Serving) -> ScanList:
    """Look now at what a watch watches, or all of yours do; what is whole is taken, what is stored is put away."""
    own = here.scanner.of(me) if asked.name is None else [here.scanner.find(asked.name, me)]
    ends_at = time.monotonic() + WAIT_S
    return ScanList(scans=[await _scan(here, watch, asked, ends_at) for watch in own])


async def _scan(here: Service, watch: Watch, asked: ScanIn, ends_at: float) -> ScanOut:
    try:
        done = await here.scanner.scan(watch.name, again=asked.again, going_on=lambda: time.monotonic() < ends_at)
    except Busy as error:
        return ScanOut(name=watch.name, found=0, submitted=0, problem=str(error), files=[])
    files = [FileOut.model_validate(file) for file in done.files]
    came = done.came
    return ScanOut(name=watch.name, found=came.found, submitted=came.submitted, problem=done.problem, files=files)


def _source(watch: Watch, known: Mapping[str, Any]) -> SourceOut:
    links = {"files": f"/v1/sources/{watch.name}/files", "scan": "/v1/ingestion/scan"}
    return SourceOut(
        name=watch.name,
        source=str(watch.source),
        scheme=watch.kind_of_source,
        pattern=list(watch.pattern.globs),
        task=_task(watch.task),
        owner=watch.owner,
        every_s=watch.every,
        marker=watch.marker,
        moves=watch.can_move,
        scanning=bool(known.get("is_scanning")),
        last_scan_at=known.get("scanned_at"),
        next_scan_at=None if watch.every is None else known.get("due_at"),
        found=known.get("found", 0),
        submitted=known.get("submitted", 0),
        problem=known.get("problem"),
        files=known.get("counts", {}),
        links=links,
    )


def _task(task: JobTask | ImportTask) -> TaskOut:
    if isinstance(task, JobTask):
        return TaskOut(kind=task.kind)
    return TaskOut(kind=KIND, resource_type=task.resource, mode=task.request.mode)
