"""HTTP routes of watches: list watches and their files, and scan watches."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, StrictBool

from tidemill.core.list_pages import BIGINT_SAFE_MAX
from tidemill.rest import dependencies
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import RuntimeDep
from tidemill.rest.schema_types import (
    EMPTY_IS_NONE,
    EXAMPLE_CREATED_AT,
    EXAMPLE_JOB_ID,
    EXAMPLE_NEXT_PAGE,
    EXAMPLE_UPDATED_AT,
    AfterCursor,
    NextPageToken,
    PageSize,
    QueryModel,
    RequestModel,
    add_empty_choice_to_schema,
)
from tidemill.watches import use_cases
from tidemill.watches.file_state import FileState
from tidemill.watches.use_cases import WatchStatus

WatchName = Annotated[str, Field(max_length=63, pattern=r"^[a-z][a-z0-9_-]*$", examples=["nightly"])]


class WatchTaskOut(BaseModel):
    """What a watch creates from each file: a job of a kind, or an import into a resource."""

    kind: str
    resource_type: str | None = None
    mode: str | None = None


class WatchOut(BaseModel):
    """A watch and its state."""

    name: str
    source: str = Field(description="Folder, bucket or URL that is watched, without secrets")
    scheme: str = Field(description="Type of the source: folder, s3, gs, az, ftp, ftps, ftpes, sftp or http")
    pattern: list[str]
    task: WatchTaskOut
    owner: str
    every_s: float | None = Field(description="Seconds between scans; null if the watch is scanned only on request")
    marker: str | None = Field(description="Suffix of the marker file. A file is complete when its marker file exists")
    moves: bool = Field(description="True if the watch moves files to an archive folder after their rows are stored")
    scanning: bool = False
    last_scan_at: datetime | None = None
    next_scan_at: datetime | None = None
    found: int = Field(0, description="Number of files that the last scan found")
    submitted: int = Field(0, description="Number of files that the last scan submitted as jobs")
    problem: str | None = Field(None, description="Problem that the last scan reported, if any")
    files: dict[FileState, int] = Field(default_factory=dict, description="Number of files by state")
    links: dict[str, str]


class WatchList(BaseModel):
    sources: list[WatchOut]


class WatchFileOut(BaseModel):
    """One version of a file, and its state."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    path: str
    size: int | None
    version: str = Field(description="Version of the file: its modification time or its ETag")
    state: FileState
    status: str | None = Field(
        validation_alias=AliasChoices("note", "status"),
        description="Why the file is in this state, or what it waits for",
    )
    job_id: UUID | None
    job_key: str | None = None
    moved_to: str | None
    tries: int = Field(description="How often the file was retried after a failure")
    seen_at: datetime = Field(description="When a scan first found this version of the file")
    updated_at: datetime = Field(validation_alias=AliasChoices("at", "updated_at"))


class WatchFilePage(BaseModel):
    """A page of files, most recently changed first."""

    files: list[WatchFileOut]
    next_page: NextPageToken = None


class WatchFileQuery(QueryModel):
    state: Annotated[
        FileState | None,
        EMPTY_IS_NONE,
        Field(description="Return only files in this state", json_schema_extra=add_empty_choice_to_schema),
    ] = None
    page_size: PageSize = 100
    after: AfterCursor = None


class ScanIn(RequestModel):
    """The watch to scan. Without a name, all your watches are scanned."""

    name: WatchName | None = None
    again: StrictBool = Field(False, description="Retry failed files that still exist at the source")


class ScanOut(BaseModel):
    """The result of scanning one watch."""

    model_config = ConfigDict(from_attributes=True)

    name: str
    found: int
    submitted: int
    problem: str | None
    files: list[WatchFileOut] = Field(
        description="Files whose state the scan changed, and files that wait; at most 500"
    )


class ScanList(BaseModel):
    scans: list[ScanOut]


router = APIRouter(tags=["sources"], route_class=AuthenticatedRoute)
WatchFileId = Annotated[int, Path(ge=1, le=BIGINT_SAFE_MAX, description="Id of a file", examples=[42])]
WatchPathName = Annotated[str, Path(max_length=63, description="Name of a watch", examples=["nightly"])]


@router.get("/sources", **build_route_options(Permission.USER))
async def list_sources(me: CurrentUser, runtime: RuntimeDep) -> WatchList:
    """List your watches with their sources, last scans, file counts and problems."""
    return WatchList(sources=[_build_watch_out(status) for status in await use_cases.list_watch_statuses(runtime, me)])


@router.get("/sources/{source_name}/files", **build_route_options(Permission.USER, 404))
async def list_source_files(
    source_name: WatchPathName, query: Annotated[WatchFileQuery, Query()], me: CurrentUser, runtime: RuntimeDep
) -> WatchFilePage:
    """List the files of a watch with their states, most recently changed first."""
    page = await use_cases.list_watch_files(
        runtime,
        me,
        source_name,
        state=query.state,
        limit=query.page_size,
        after=dependencies.decode_cursor(query.after),
    )
    files = [WatchFileOut.model_validate(row) for row in page.items]
    return WatchFilePage(files=files, **dependencies.build_next_page_dict(page.after))


@router.post("/sources/{source_name}/files/{file_id}/accept", **build_route_options(Permission.USER, 404, 409))
async def accept_source_file(
    source_name: WatchPathName, file_id: WatchFileId, me: CurrentUser, runtime: RuntimeDep
) -> WatchFileOut:
    """Accept a file that is held because its columns changed. The next scan submits it.

    The watch then compares the next files with its columns.
    """
    return WatchFileOut.model_validate(
        await use_cases.decide_held_file(runtime, me, source_name, file_id=file_id, accept=True)
    )


@router.post("/sources/{source_name}/files/{file_id}/reject", **build_route_options(Permission.USER, 404, 409))
async def reject_source_file(
    source_name: WatchPathName, file_id: WatchFileId, me: CurrentUser, runtime: RuntimeDep
) -> WatchFileOut:
    """Reject a file that is held because its columns changed. The next scan moves it to the folder of failed files."""
    return WatchFileOut.model_validate(
        await use_cases.decide_held_file(runtime, me, source_name, file_id=file_id, accept=False)
    )


@router.post("/ingestion/scan", **build_route_options(Permission.USER, 404))
async def scan_sources(body: ScanIn, me: CurrentUser, runtime: RuntimeDep) -> ScanList:
    """Scan a watch now, or all your watches.

    A scan submits complete files as jobs and archives files whose rows are stored.
    """
    scans = await use_cases.scan_watches(runtime, me, body.name, retry_failed=body.again)
    return ScanList(scans=[ScanOut.model_validate(scan) for scan in scans])


def _build_watch_out(status: WatchStatus) -> WatchOut:
    watch, state = status.watch, status.state
    links = {"files": f"/v1/sources/{watch.name}/files", "scan": "/v1/ingestion/scan"}
    return WatchOut(
        name=watch.name,
        source=str(watch.source),
        scheme=watch.source_kind,
        pattern=list(watch.pattern.globs),
        task=WatchTaskOut(**asdict(watch.task.get_view())),
        owner=watch.owner,
        every_s=watch.every,
        marker=watch.marker,
        moves=watch.archives_files,
        scanning=bool(state.get("is_scanning")),
        last_scan_at=state.get("scanned_at"),
        next_scan_at=None if watch.every is None else state.get("due_at"),
        found=state.get("found", 0),
        submitted=state.get("submitted", 0),
        problem=state.get("problem"),
        files=state.get("counts", {}),
        links=links,
    )


_WATCH_FILE: dict[str, Any] = {
    "id": 42,
    "path": "users-2026-11-15.csv",
    "size": 18234,
    "version": "1763197200000000000",
    "state": "processed",
    "status": None,
    "job_id": EXAMPLE_JOB_ID,
    "job_key": "J20261115_000778",
    "moved_to": "processed/users-2026-11-15.csv",
    "tries": 0,
    "seen_at": EXAMPLE_CREATED_AT,
    "updated_at": EXAMPLE_UPDATED_AT,
}
_WATCH: dict[str, Any] = {
    "name": "nightly",
    "source": "sftp://mill@files.example.com/outgoing",
    "scheme": "sftp",
    "pattern": ["users-*.csv"],
    "task": {"kind": "tidemill.import", "resource_type": "users", "mode": "upsert"},
    "owner": "ada",
    "every_s": 60.0,
    "marker": None,
    "moves": True,
    "scanning": False,
    "last_scan_at": EXAMPLE_UPDATED_AT,
    "next_scan_at": EXAMPLE_UPDATED_AT,
    "found": 1,
    "submitted": 1,
    "problem": None,
    "files": {"seen": 1, "processed": 41, "failed": 2},
    "links": {"files": "/v1/sources/nightly/files", "scan": "/v1/ingestion/scan"},
}
_WATCH_SCAN: dict[str, Any] = {"name": "nightly", "found": 1, "submitted": 1, "problem": None, "files": [_WATCH_FILE]}

OPENAPI_EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    WatchList: {"sources": [_WATCH]},
    WatchFileOut: _WATCH_FILE,
    WatchFilePage: {"files": [_WATCH_FILE], "next_page": EXAMPLE_NEXT_PAGE},
    ScanIn: {"name": "nightly"},
    ScanList: {"scans": [_WATCH_SCAN]},
}
