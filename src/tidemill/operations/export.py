"""A job's rows as a file: asking for it, and getting it."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, BinaryIO
from uuid import UUID

from tidemill.config import Settings
from tidemill.connectors.blobs import Blobs, open_blobs
from tidemill.domain.columns import Cell, Columns, Row, cells
from tidemill.domain.errors import Conflict, UnknownFile, UnknownJob
from tidemill.domain.export import KIND, ExportRequest, Rows
from tidemill.domain.form import Compression, FileFormat, Form
from tidemill.domain.job import Job
from tidemill.domain.page import check_text
from tidemill.domain.status import ItemStatus, JobStatus
from tidemill.operations.submit import submit
from tidemill.store import inspect, jobs, results
from tidemill.store.database import Database
from tidemill.store.json import encode
from tidemill.store.lists.grid import find_grid
from tidemill.store.submit import Submission

_UNWANTED = (JobStatus.CANCELLING, JobStatus.CANCELLED)
PRIORITY = 10  # among the jobs of its owner: somebody waits for a file


@dataclass(frozen=True, slots=True)
class FileFacts:
    """What is known of a file that was made."""

    file_id: str
    name: str
    size: int
    sha256: str
    content_type: str


@dataclass(frozen=True, slots=True)
class ExportFile(FileFacts):
    """An export's file, open; whoever asked for it closes it."""

    file: BinaryIO


async def job_columns(db: Database, job_id: UUID) -> Columns:
    """The columns of a job's grid and of its exports, in order."""
    return (await db.run(find_grid, job_id)).columns


async def grid(db: Database, job_id: UUID, items: Sequence[Row]) -> tuple[Columns, list[list[Cell]]]:
    """A page of a job's items, as a list has given it, in cells: what an export has in these rows.

    But for a result or an input of more than 16 kB, which lists leave out: its item, looked up, has it.
    """
    columns = await job_columns(db, job_id)
    if columns.of == "input":
        inputs = await db.run(results.shown_inputs, job_id, [item["seq"] for item in items])
        items = [{**item, "input": inputs.get(item["seq"])} for item in items]
    return columns, [cells(columns, item) for item in items]


async def export_results(
    db: Database,
    settings: Settings,
    job: Job,
    *,
    format: str,  # noqa: A002  the word of the request
    statuses: Iterable[str] = (),
    rows: Rows | None = None,
    spreadsheet_safe: bool = False,
    owner_id: int,
    request_id: str | None = None,
    traceparent: str | None = None,
    ip_address: str | None = None,
) -> tuple[UUID, bool]:
    """The job that makes, or has made, this file of the results as they are now; and whether it is new.

    One that failed, was cancelled or has lost its file counts for nothing: a new one takes its place.
    """
    check_text("a filter", *(() if rows is None else (rows.key, *(rows.codes or ()))))
    request = ExportRequest.of(job.id, format, statuses, spreadsheet_safe=spreadsheet_safe, rows=rows)
    state = await db.run(results.state, job.id)
    if state["purged_at"] is not None:
        raise Conflict(f"job {job.key} was purged: its rows are gone")
    key = _key(request, state)
    spec = Submission(
        KIND,
        owner_id=owner_id,
        priority=PRIORITY,
        request_id=request_id,
        traceparent=traceparent,
        ip_address=ip_address,
        idem_key=key,
    )
    blobs = open_blobs(settings.blobs)
    while True:
        export_id, is_new = await submit(db, spec, [encode(request.input())], built_in=True)
        if is_new or await _is_usable(db, blobs, export_id):
            return export_id, is_new
        await db.run(results.release_key, export_id, key)


async def export_facts(db: Database, export: Job) -> FileFacts:
    """Of an export that has made its file; Conflict says why there is none."""
    if export.kind != KIND:
        raise Conflict(f"job {export.key} is no export: it has no file")
    item = await db.run(inspect.get_item, export.id, 0)
    if item["status"] != ItemStatus.DONE or export.status in _UNWANTED:
        because = f": {item['error']['reason']}" if item["error"] else ""
        raise Conflict(f"export {export.key} is {export.status}{because}; it has no file")
    made = item["result"]
    if made.get("expires_at") and datetime.fromisoformat(made["expires_at"]) <= await db.run(jobs.clock):
        raise Conflict(f"the file of export {export.key} has expired; ask for the export again")
    told = {name: made[name] for name in ("file_id", "name", "size", "sha256")}
    return FileFacts(**told, content_type=_content_type(made))


async def export_file(db: Database, blobs: Blobs, export: Job) -> ExportFile:
    """The file of an export; Conflict says why there is none."""
    facts = await export_facts(db, export)
    try:
        file = await asyncio.to_thread(blobs.open, facts.file_id)
    except UnknownFile:
        raise file_gone(export) from None
    return ExportFile(**asdict(facts), file=file)


def file_gone(export: Job) -> Conflict:
    return Conflict(f"the file of export {export.key} is gone; ask for the export again")


def _content_type(made: dict[str, Any]) -> str:
    return Form(FileFormat(made["format"]), (), Compression(made.get("compression", "none"))).content_type


def _key(request: ExportRequest, state: dict[str, Any]) -> str:
    return f"{KIND}:{hashlib.sha256(encode([request.input(), state])).hexdigest()}"


async def _is_usable(db: Database, blobs: Blobs, export_id: UUID) -> bool:
    try:
        export = await db.run(jobs.get, export_id)
    except UnknownJob:  # deleted meanwhile, and its key with it
        return False
    if not export.is_closed:
        return export.status is not JobStatus.CANCELLING
    try:
        facts = await export_facts(db, export)
    except Conflict:  # it failed, was cancelled, or has expired
        return False
    return await asyncio.to_thread(blobs.has, facts.file_id)
