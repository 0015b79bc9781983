"""Submits exports of tables and job results, reads their state, and opens their files."""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, BinaryIO
from uuid import UUID

import msgspec

from tidemill.core.errors import Conflict, InvalidInput, UnknownFile, UnknownJob
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.job import Job
from tidemill.core.kinds import EXPORT_KIND
from tidemill.core.list_pages import check_storable_text
from tidemill.core.principal import Principal, Role
from tidemill.core.result_grid import ResultColumn
from tidemill.core.status import ItemStatus, JobStatus
from tidemill.exports import result_export
from tidemill.exports.handler import close_result_writers, write_results
from tidemill.exports.result_export import ExportedJob, ExportRecord, ResultExportRequest, ResultFileWriter
from tidemill.exports.table_export_request import TableExportPlan, TableExportRequest, build_table_export_plan
from tidemill.exports.table_exporter import SerialThread
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.jobs.staged_files import DownloadInfo
from tidemill.jobs.submission import submit_job
from tidemill.runtime import KindHooks, Runtime
from tidemill.store import database_clock, item_records, job_records, job_submission, workers
from tidemill.store.database import Connection, Database
from tidemill.store.job_submission import Submission, find_repeated_submission
from tidemill.store.jsonb import encode_json
from tidemill.tables.introspection.table_introspection import describe_access_problems, find_access_problems
from tidemill.tables.resource_registry import make_resource_registry

EXPORT_JOB_PRIORITY = 10  # above the other jobs of its owner, because a person waits for the file
FAIL_FAST_POLICY = {"mode": "fail_fast"}  # an export has one item: if it fails, the job fails
RESULT_EXPORT_ATTEMPTS_MAX = 5
RESULT_EXPORT_POLL_S = 0.1
RESULT_EXPORT_STALL_S = 60.0
_CANCELLED_STATUSES = (JobStatus.CANCELLING, JobStatus.CANCELLED)


async def plan_table_export(runtime: Runtime, request: TableExportRequest, role: Role | None) -> TableExportPlan:
    """Return the plan to export a table for a user with this role. Pass None for code of the mill: it needs no grant.

    Raises:
        Forbidden: The role may write the resource, but not read it.
        UnknownResource: The resource does not exist, or the role has no access to it.
        InvalidInput: With every problem in the request, or with the privileges that the database user lacks.
    """
    db, resources = runtime.db, runtime.get(make_resource_registry)
    if role is None:
        resource = await resources.get_resource(db, request.resource, any_table=True, for_reading=True)
    else:
        resource = await resources.get_readable_resource(db, role, request.resource)
    plan = build_table_export_plan(request, resource)
    missing = await db.run(find_access_problems, plan.table, plan.columns, "read")
    # Ignore row-level security: the file contains the rows that the database user can see.
    missing = [problem for problem in missing if not problem.is_row_security]
    if missing:
        raise InvalidInput(f"Cannot read table {plan.table}: {describe_access_problems(missing)}")
    return plan


async def submit_table_export(
    runtime: Runtime, spec: Submission, request: TableExportRequest, role: Role | None
) -> tuple[UUID, bool]:
    """Submit a job that writes the file; return its id and whether it is new.

    A repeated idempotency key returns the job of the first request, even if the table has changed since. Otherwise,
    raises the same errors as ``plan_table_export``.
    """
    spec = replace(spec, kind=EXPORT_KIND, fingerprint_params=request.to_params(), policy=FAIL_FAST_POLICY)
    if spec.idem_key is not None:
        existing = await runtime.db.run(find_repeated_submission, spec)
        if existing is not None:
            return existing, False
    plan = await plan_table_export(runtime, request, role)
    spec = replace(spec, params={"asked": request.to_params(), "plan": msgspec.to_builtins(plan)}, file_bytes=0)
    return await submit_job(runtime.db, spec, [encode_json({"resource": request.resource})], built_in=True)


async def submit_result_export(
    runtime: Runtime, spec: Submission, job: Job, request: ResultExportRequest
) -> tuple[Job, bool]:
    """Submit an export of the current results of a job; return it and whether it is new.

    Repeating the request while the results are unchanged returns the first export, unless that export failed, was
    cancelled or has lost its file. Raises Conflict if the job was purged.
    """
    check_storable_text("A filter", request.rows.key, *(request.rows.codes or ()))
    db = runtime.db
    state = await db.run(result_export.read_results_version, job.id)
    if state["purged_at"] is not None:
        raise Conflict(f"Job {job.key} was purged. Its rows are no longer available.")
    if request.columns:
        await list_result_columns(runtime, job, request)
    row = encode_json(request.to_item_input())
    key = f"{EXPORT_KIND}:{hashlib.sha256(encode_json([request.to_item_input(), state])).hexdigest()}"
    spec = replace(spec, kind=EXPORT_KIND, priority=EXPORT_JOB_PRIORITY, idem_key=key, file_bytes=0)
    for _ in range(RESULT_EXPORT_ATTEMPTS_MAX):
        export_id, is_new = await submit_job(db, spec, [row], built_in=True)
        if is_new:
            return await db.read(job_records.get_job, export_id), True
        existing = await _find_export_open_or_with_file(db, runtime.blobs, export_id)
        if existing is not None:
            return existing, False
        await db.run(job_submission.release_idempotency_key, export_id, key)
    raise Conflict(f"Another export of job {job.key} is being deleted. Try again.")


async def list_result_columns(runtime: Runtime, job: Job, request: ResultExportRequest) -> tuple[ResultColumn, ...]:
    """Return the columns of a result file as the first rows show them. Columns of later rows are missing.

    Raises:
        InvalidInput: A wanted column does not exist.
        UnknownJob: The job was deleted.
    """
    async with result_export.open_snapshot(runtime.db) as conn:
        survey = await _read_exported_job(conn, job)
        return (await result_export.resolve_export_columns(conn, survey, request, with_scan=False)).columns


async def write_results_to_output(runtime: Runtime, job: Job, request: ResultExportRequest, output: ByteOutput) -> int:
    """Write the current results of a job to an output, and return the number of rows.

    Raises:
        InvalidInput: A wanted column does not exist.
        Conflict: The job was purged.
    """
    thread, writers = SerialThread(), list[ResultFileWriter]()
    try:
        async with result_export.open_snapshot(runtime.db) as conn:
            survey = await _read_exported_job(conn, job)
            writer = await write_results(conn, survey, request, output, thread, writers)
    except BaseException:
        await thread.run_last(partial(close_result_writers, writers))
        raise
    thread.shut_down_without_waiting()
    return writer.rows


async def _read_exported_job(conn: Connection, job: Job) -> ExportedJob:
    survey = await result_export.read_exported_job(conn, job.id)
    if survey is None:
        raise UnknownJob(f'Unknown job "{job.key}"')
    if survey.purged:
        raise Conflict(f"Job {job.key} was purged. Its rows are no longer available.")
    return survey


async def _find_export_open_or_with_file(db: Database, blobs: BlobStore, export_id: UUID) -> Job | None:
    """Return the export if it is open or its file still exists; otherwise None."""
    try:
        export = await db.read(job_records.get_job, export_id)
        if not export.is_closed:
            return None if export.status is JobStatus.CANCELLING else export
        file = await read_export_file_info(db, export)
    except (UnknownJob, Conflict):  # deleted, failed, cancelled or expired
        return None
    return export if await asyncio.to_thread(blobs.has, file.file_id) else None


@dataclass(frozen=True, slots=True)
class ExportDetails:
    """An export: its job, its request and its file."""

    job: Job
    request: dict[str, Any]
    idempotency_key: str | None
    started_at: datetime | None
    result: Mapping[str, Any]  # empty if there is no file
    failure_reason: str | None
    is_expired: bool
    file_url: str | None  # in the blob store; None if the file cannot be downloaded


async def read_exports(runtime: Runtime, jobs: Sequence[Job]) -> list[ExportDetails]:
    """Return the details of these export jobs, in the same order."""
    if not jobs:
        return []
    records = await runtime.db.read(result_export.read_export_records_by_id, [job.id for job in jobs])
    now = await runtime.db.run(database_clock.read_database_clock)
    return [_build_export_details(runtime, job, records.get(job.id), now) for job in jobs]


async def read_export(runtime: Runtime, job_id: UUID) -> ExportDetails:
    """Return the details of one export."""
    return (await read_exports(runtime, [await runtime.db.read(job_records.get_job, job_id)]))[0]


def _build_export_details(runtime: Runtime, job: Job, record: ExportRecord | None, now: datetime) -> ExportDetails:
    result: Mapping[str, Any] = (record.result if record else None) or {}
    error = (record.error if record else None) or {}
    # Table exports store the request in the params of the job; result exports store it in the input of the item.
    request: dict[str, Any] = job.params.get("asked") or (record.input if record else None) or {}
    if request.get("statuses"):
        request = request | {"filters": {"status": {"in": request["statuses"]}}}
    is_expired = bool(result.get("expires_at")) and datetime.fromisoformat(result["expires_at"]) <= now
    has_file = bool(job.is_closed and result) and job.status is not JobStatus.CANCELLED and not is_expired
    return ExportDetails(
        job=job,
        request=request,
        idempotency_key=record.idem_key if record else None,
        started_at=job.started_at,
        result=result,
        failure_reason=error.get("reason") or job.failure_reason,
        is_expired=is_expired,
        file_url=runtime.blobs.url(result["file_id"]) if has_file else None,
    )


@dataclass(frozen=True, slots=True)
class OpenExportFile(DownloadInfo):
    """An open export file; the caller closes it."""

    file: BinaryIO


async def read_export_file_info(db: Database, export: Job) -> DownloadInfo:
    """Return the name, size and content type of an export's file; raise Conflict if it has no file."""
    if export.kind != EXPORT_KIND:
        raise Conflict(f"Job {export.key} is not an export and has no file")
    item = await db.read_snapshot(item_records.read_item_details, export.id, 0)
    if item["status"] != ItemStatus.DONE or export.status in _CANCELLED_STATUSES:
        reason = f": {item['error']['reason']}" if item["error"] else ""
        raise Conflict(f"Export {export.key} has no file (status: {export.status}){reason}")
    result = item["result"]
    if result.get("expires_at"):
        now = await db.run(database_clock.read_database_clock)
        if datetime.fromisoformat(result["expires_at"]) <= now:
            raise Conflict(f"The file of export {export.key} has expired. Submit the export again.")
    form = OutputFileSpec(FileFormat(result["format"]), (), Compression(result.get("compression", "none")))
    return DownloadInfo(
        result["file_id"], result["name"], result["size"], result["sha256"], content_type=form.content_type
    )


async def open_export_file(db: Database, blobs: BlobStore, export: Job) -> OpenExportFile:
    """Open the file of an export; raise Conflict if it has no file."""
    info = await read_export_file_info(db, export)
    try:
        file = await asyncio.to_thread(blobs.open, info.file_id)
    except UnknownFile:
        raise make_export_gone_error(export) from None
    return OpenExportFile(**asdict(info), file=file)


def make_export_gone_error(export: Job) -> Conflict:
    return Conflict(f"The file of export {export.key} no longer exists. Submit the export again.")


async def export_results_and_open_file(runtime: Runtime, job: Job, format_: str) -> BinaryIO:
    """Export the results of a job, wait for the file, and open it; the caller closes it.

    Raises:
        Conflict: The export failed, or cannot progress because it is paused or no worker runs exports.
    """
    spec = Submission(EXPORT_KIND, owner_id=job.owner_id)
    export, _ = await submit_result_export(runtime, spec, job, ResultExportRequest.create(job.id, format_))
    export = await _wait_until_export_closed(runtime.db, export)
    return (await open_export_file(runtime.db, runtime.blobs, export)).file


async def _wait_until_export_closed(db: Database, export: Job) -> Job:
    last_runnable = time.monotonic()
    while not export.is_closed:
        if time.monotonic() - last_runnable > RESULT_EXPORT_STALL_S:
            why = "it is paused" if export.status is JobStatus.PAUSED else "no worker runs exports"
            raise Conflict(f"Export {export.key} has not finished: {why}. The export stays queued.")
        await asyncio.sleep(RESULT_EXPORT_POLL_S)
        export = await db.read(job_records.get_job, export.id)
        if export.status is not JobStatus.PAUSED and EXPORT_KIND in await db.read(workers.list_live_kinds):
            last_runnable = time.monotonic()
    return export


def _get_resource_of_export(job: Job) -> str | None:
    plan = job.params.get("plan")
    return plan["resource"] if plan else None


async def _check_target_readable(runtime: Runtime, user: Principal, resource: str) -> None:
    await runtime.get(make_resource_registry).get_readable_resource(runtime.db, user.role, resource)


def _build_download_links(job: Job) -> dict[str, str]:
    return {"download": f"/v1/exports/{job.id}/download"}


EXPORT_HOOKS = KindHooks(
    get_target=_get_resource_of_export,
    authorize=_check_target_readable,
    # Submission checked the permission to read the rows for the original input only.
    fix_refusal="The input of an export cannot be fixed. Submit a new export.",
    get_links=_build_download_links,
)
