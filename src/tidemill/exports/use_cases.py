"""A job's rows as a file: asking for it, and getting it.

Rows of a table, out of the house: as a file that a job makes, or at once, as they come.
"""

import asyncio
import hashlib
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import BinaryIO
from uuid import UUID

import msgspec

from tidemill.config import Settings
from tidemill.core.errors import Conflict, InvalidInput, UnknownFile, UnknownJob
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec, parse_result_format
from tidemill.core.job import Job
from tidemill.core.kinds import EXPORT_KIND
from tidemill.core.list_pages import check_text
from tidemill.core.principal import Principal
from tidemill.core.row_ranges import RowSelection
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.exports import export_records
from tidemill.exports.result_export import ExportedFile, ResultExportRequest
from tidemill.exports.table_copy import compile_export_query, copy_query_to_sink
from tidemill.exports.table_export import TableExportPlan, TableExportRequest, build_table_export_plan
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.writers import open_copy_encoder
from tidemill.jobs.staged_files import DownloadInfo
from tidemill.jobs.submission import submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store import item_records, job_records, job_submission
from tidemill.store.database import Database
from tidemill.store.job_events import report_export_completed
from tidemill.store.job_submission import Submission, find_repeated_submission
from tidemill.store.jsonb import encode_json
from tidemill.store.statements import RowDict
from tidemill.tables.introspection.table_introspection import list_missing_privileges
from tidemill.tables.resource import Resource
from tidemill.tables.resource_registry import make_resource_registry
from tidemill.terminal.streams import open_atomic_output

_CANCELLED_STATUSES = (JobStatus.CANCELLING, JobStatus.CANCELLED)
EXPORT_JOB_PRIORITY = 10  # among the jobs of its owner: somebody waits for a file


@dataclass(frozen=True, slots=True)
class OpenExportFile(DownloadInfo):
    """An export's file, open; whoever asked for it closes it."""

    file: BinaryIO


async def submit_result_export(
    db: Database,
    settings: Settings,
    job: Job,
    *,
    format: str,  # noqa: A002  the word of the request
    statuses: Iterable[str] = (),
    rows: RowSelection | None = None,
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
    request = ResultExportRequest.create(job.id, format, statuses, spreadsheet_safe=spreadsheet_safe, rows=rows)
    state = await db.run(export_records.read_results_state, job.id)
    if state["purged_at"] is not None:
        raise Conflict(f"job {job.key} was purged: its rows are gone")
    key = _build_export_key(request, state)
    spec = Submission(
        EXPORT_KIND,
        owner_id=owner_id,
        priority=EXPORT_JOB_PRIORITY,
        request_id=request_id,
        traceparent=traceparent,
        ip_address=ip_address,
        idem_key=key,
    )
    blobs = open_blob_store(settings.blobs)
    while True:
        export_id, is_new = await submit_job(db, spec, [encode_json(request.to_input())], built_in=True)
        if is_new or await _is_export_usable(db, blobs, export_id):
            return export_id, is_new
        await db.run(job_submission.release_idempotency_key, export_id, key)


async def get_export_download(db: Database, export: Job) -> DownloadInfo:
    """Of an export that has made its file; Conflict says why there is none."""
    if export.kind != EXPORT_KIND:
        raise Conflict(f"job {export.key} is no export: it has no file")
    item = await db.read_snapshot(item_records.get_item, export.id, 0)
    if item["status"] != ItemStatus.DONE or export.status in _CANCELLED_STATUSES:
        because = f": {item['error']['reason']}" if item["error"] else ""
        raise Conflict(f"export {export.key} is {export.status}{because}; it has no file")
    made = item["result"]
    if made.get("expires_at") and datetime.fromisoformat(made["expires_at"]) <= await db.run(
        job_records.read_database_clock
    ):
        raise Conflict(f"the file of export {export.key} has expired; ask for the export again")
    told = {name: made[name] for name in ("file_id", "name", "size", "sha256")}
    return DownloadInfo(**told, content_type=_build_content_type(made))


async def open_export_file(db: Database, blobs: BlobStore, export: Job) -> OpenExportFile:
    """The file of an export; Conflict says why there is none."""
    facts = await get_export_download(db, export)
    try:
        file = await asyncio.to_thread(blobs.open, facts.file_id)
    except UnknownFile:
        raise make_export_gone_error(export) from None
    return OpenExportFile(**asdict(facts), file=file)


def make_export_gone_error(export: Job) -> Conflict:
    return Conflict(f"the file of export {export.key} is gone; ask for the export again")


def _build_content_type(made: ExportedFile) -> str:
    return OutputFileSpec(FileFormat(made["format"]), (), Compression(made.get("compression", "none"))).content_type


def _build_export_key(request: ResultExportRequest, state: RowDict) -> str:
    return f"{EXPORT_KIND}:{hashlib.sha256(encode_json([request.to_input(), state])).hexdigest()}"


async def _is_export_usable(db: Database, blobs: BlobStore, export_id: UUID) -> bool:
    try:
        export = await db.read(job_records.get_job, export_id)
    except UnknownJob:  # deleted meanwhile, and its key with it
        return False
    if not export.is_closed:
        return export.status is not JobStatus.CANCELLING
    try:
        facts = await get_export_download(db, export)
    except Conflict:  # it failed, was cancelled, or has expired
        return False
    return await asyncio.to_thread(blobs.has, facts.file_id)


FAIL_FAST_POLICY = {"mode": "fail_fast"}  # an export that has no file has failed
STREAM_CHUNKS_AHEAD = 2  # pieces that wait for a reader


async def plan_table_export(db: Database, resource: Resource, request: TableExportRequest) -> TableExportPlan:
    """What an export would do; InvalidInput with all that is wrong with the request, or why the table is not read."""
    plan = build_table_export_plan(request, resource)
    needed = [one.column for one in plan.fields] + [one.column for one in plan.filters]
    needed += [one.column for one in plan.order]
    lacking = await db.run(list_missing_privileges, plan.table, list(dict.fromkeys(needed)), "read")
    lacking = [one for one in lacking if not one.startswith("row-level security")]  # what a role sees is what it gets
    if lacking:
        raise InvalidInput(f"{plan.table} cannot be read: {'; '.join(lacking)}")
    return plan


async def find_repeated_table_export(db: Database, spec: Submission, request: TableExportRequest) -> UUID | None:
    """The job that the same words have made before, whatever has become of the table."""
    return await db.run(find_repeated_submission, _with_request(spec, request))


async def submit_table_export(
    db: Database, spec: Submission, plan: TableExportPlan, request: TableExportRequest
) -> tuple[UUID, bool]:
    """The job that makes the file, and whether it is new. A key that comes again stands for what was said."""
    spec = replace(
        _with_request(spec, request), params={"asked": request.to_params(), "plan": msgspec.to_builtins(plan)}
    )
    return await submit_job(db, spec, [encode_json({"resource": request.resource})], built_in=True)


def _with_request(spec: Submission, request: TableExportRequest) -> Submission:
    return replace(spec, kind=EXPORT_KIND, fingerprint_params=request.to_params(), policy=FAIL_FAST_POLICY)


async def stream_table_export(
    db: Database, plan: TableExportPlan, on_complete: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[bytes]:
    """The file, piece by piece, while it is read; ``told`` how many rows it had. Who stops listening ends the query."""
    pipe = _ChunkPipe()
    reading = asyncio.create_task(_copy_into_pipe(db, plan, pipe, on_complete))
    reading.add_done_callback(lambda _: pipe.close())
    try:
        while (piece := await pipe.get()) is not None:
            yield piece
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _copy_into_pipe(db: Database, plan: TableExportPlan, pipe: "_ChunkPipe", told: Callable[[int], None]) -> None:
    started, output = time.monotonic(), _EncodedChunks()
    is_plain = plan.compression is Compression.NONE and plan.format in (FileFormat.CSV, FileFormat.NDJSON)
    encoder = open_copy_encoder(plan.form, output)

    async def write_chunk(chunk: bytes) -> None:
        if is_plain:  # a thread would cost more than it does
            encoder.write(chunk)
        else:
            await asyncio.to_thread(encoder.write, chunk)
        await pipe.put(output.drain())

    rows = await copy_query_to_sink(db, compile_export_query(plan), plan.form.copy_format, write_chunk)
    await asyncio.to_thread(encoder.close)
    await pipe.put(output.drain())
    told(rows)
    report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started)


class _ChunkPipe:
    """A few pieces at most between one who reads and one who writes; the end always finds room."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = asyncio.Semaphore(STREAM_CHUNKS_AHEAD)

    async def put(self, piece: bytes) -> None:
        if piece:
            await self._slots.acquire()
            self._chunks.put_nowait(piece)

    async def get(self) -> bytes | None:
        piece = await self._chunks.get()
        self._slots.release()
        return piece

    def close(self) -> None:
        self._chunks.put_nowait(None)


class _EncodedChunks:
    """Keeps what an encoder writes until somebody takes it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, piece: bytes, /) -> int:
        self._written.append(bytes(piece))
        return len(piece)

    def flush(self) -> None: ...

    def drain(self) -> bytes:
        written, self._written = self._written, []
        return written[0] if len(written) == 1 else b"".join(written)


def _get_target(job: Job) -> str | None:
    plan = job.params.get("plan")
    return plan["resource"] if plan else None


async def _authorize(runtime: Runtime, user: Principal, resource: str) -> None:
    await runtime.get(make_resource_registry).find_readable(runtime.db, user.role, resource)


def _get_links(job: Job) -> dict[str, str]:
    return {"download": f"/v1/exports/{job.id}/download"}


EXPORT_HOOKS = KindHooks(get_target=_get_target, authorize=_authorize, get_links=_get_links)


RESULT_EXPORT_POLL_S = 0.1


async def write_results_to_file(runtime: Runtime, job: Job, output: Path) -> None:
    """Export a job's results and copy the file to ``output``. A worker must be running."""
    db = runtime.db
    export_id, _ = await submit_result_export(
        db, runtime.settings, job, format=parse_result_format(output), owner_id=job.owner_id
    )
    export = await db.read(job_records.get_job, export_id)
    while not export.is_closed:
        await asyncio.sleep(RESULT_EXPORT_POLL_S)
        export = await db.read(job_records.get_job, export_id)
    file = await open_export_file(db, runtime.blobs, export)
    await asyncio.to_thread(_copy_export_file, file, output)


def _copy_export_file(export: OpenExportFile, output: Path) -> None:
    with export.file, open_atomic_output(output) as file:
        shutil.copyfileobj(export.file, file)
