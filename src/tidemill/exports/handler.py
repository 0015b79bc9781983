"""Runs export jobs. Each has one item, whose input selects a table or the results of a job to write to a file."""

from collections.abc import Iterable
from contextlib import aclosing, suppress

from tidemill.core.errors import InvalidInput, StorageAccessDenied
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Item
from tidemill.core.kinds import EXPORT_KIND, Handler
from tidemill.core.outcome import Fail, Wait
from tidemill.core.policies import RetryPolicy
from tidemill.core.result_grid import CellTypes
from tidemill.exports import result_export
from tidemill.exports.result_export import (
    ExportedFile,
    ExportedJob,
    ResultExportRequest,
    ResultFileWriter,
    is_table_export_input,
    resolve_export_columns,
)
from tidemill.exports.table_exporter import SerialThread, TableExporter
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import BlobStore, BlobWriter, DownloadLabel
from tidemill.files.writers.byte_output import ByteOutput
from tidemill.runtime import Runtime
from tidemill.store import quota_records, retention
from tidemill.store.database import Connection, Database, describe_error
from tidemill.telemetry.events import emit


async def write_results(
    conn: Connection,
    survey: ExportedJob,
    request: ResultExportRequest,
    output: ByteOutput,
    thread: SerialThread,
    writers: list[ResultFileWriter],
) -> ResultFileWriter:
    """Write the results of a job to an output, and return the closed writer.

    The writer is added to ``writers`` before the first row, so that the caller can close it after an error.
    """
    columns = await resolve_export_columns(conn, survey, request)
    types = CellTypes(columns) if request.format is FileFormat.PARQUET else None
    writer = ResultFileWriter(output, request, columns, survey.item_statuses, types)
    writers.append(writer)
    # A Parquet file begins with the types of its columns, which only all rows show.
    for handle in (writer.write_results,) if types is None else (writer.learn_types, writer.write_results):
        packets = result_export.stream_results(conn, survey, request.rows, reads_inputs=columns.reads_inputs)
        async with aclosing(packets):
            async for packet in packets:
                await thread.start_after_previous(handle, packet)
    await thread.run_after_previous(writer.close)
    return writer


EXPORT_TTL_HOURS = 168
EXPORT_COLUMNS = ("name", "format", "rows", "cut_cells", "size", "sha256", "file_id")


def make_export_handler(runtime: Runtime) -> Handler:
    db, blobs, ttl_hours = runtime.db, runtime.blobs, runtime.settings.export_ttl_hours
    export_results = ResultExporter(db, blobs, ttl_hours=ttl_hours).write_result_file
    export_table = TableExporter(db, blobs, ttl_hours=ttl_hours).write_table_file

    async def run(item: Item) -> ExportedFile:
        try:
            return await (export_table if is_table_export_input(item.input) else export_results)(item)
        except Wait:
            raise
        except Exception as error:
            emit("export.failed", job=item.job_id, attempt=item.attempt, error=describe_error(error))
            if isinstance(error, StorageAccessDenied):  # a retry would be denied as well
                raise Fail(str(error), code="store_denied", retryable=True) from error
            raise

    retry = RetryPolicy(max_attempts=3)
    return Handler(EXPORT_KIND, run, "async", concurrency=2, timeout=None, retry=retry, columns=EXPORT_COLUMNS)


class ResultExporter:
    """Reads results in the event loop and writes them in a thread, which is at most one packet behind."""

    def __init__(self, db: Database, blobs: BlobStore, *, ttl_hours: int = EXPORT_TTL_HOURS) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def write_result_file(self, item: Item) -> ExportedFile:
        """Write the file and return its description. On any error, remove the partial file and raise the error."""
        request = ResultExportRequest.from_item_input(item.input)
        # Each attempt writes its own file, so an attempt that lost its lease cannot damage the file of the next one.
        writing, thread = self._blobs.open_writer(), SerialThread()
        tables: list[ResultFileWriter] = []
        try:
            name = await self._write_file(writing, thread, request, tables)
            await self._stop_unless_file_needed(request, item)
            expires_at = await self._db.run(retention.set_file_expiry, writing.name, item.job_id, self._ttl_hours)
            blob = await thread.run_after_previous(writing.finish)
            failpoint("result_export.file_finished")
            await self._db.run(quota_records.record_stored_file_size, blob.id, item.job_id, blob.size)
        except BaseException:
            await thread.run_last(lambda: _discard_result_file(writing, tables))
            raise
        thread.shut_down_without_waiting()
        (table,) = tables
        file = ExportedFile(
            name=name,
            format=request.format,
            rows=table.rows,
            cut_cells=table.cut_cells,
            size=blob.size,
            sha256=blob.sha256.hex(),
            file_id=blob.id,
            spreadsheet_safe=request.spreadsheet_safe,
            expires_at=expires_at.isoformat(),
        )
        if request.compression is not Compression.NONE:
            file["compression"] = request.compression
        return file

    async def _write_file(
        self, writing: BlobWriter, thread: SerialThread, request: ResultExportRequest, tables: list[ResultFileWriter]
    ) -> str:
        """Write the rows and return the name of the file."""
        async with result_export.open_snapshot(self._db) as conn:
            survey = await result_export.read_exported_job(conn, request.job_id)
            if survey is None or survey.purged:
                raise _make_job_gone_failure(request)
            name = request.build_file_name(survey.key)
            writing.label = DownloadLabel(name, request.file_spec.content_type)
            try:
                await write_results(conn, survey, request, writing, thread, tables)
            except InvalidInput as error:
                raise Fail(str(error), code="invalid") from error
        return name

    async def _stop_unless_file_needed(self, request: ResultExportRequest, item: Item) -> None:
        """Raise, which removes the file, if the export was cancelled or has finished, or the job was deleted."""
        if not await self._db.run(result_export.is_result_export_file_needed, request.job_id, item.job_id):
            if not await self._db.read(result_export.is_export_file_needed, item.job_id):
                raise Wait("The export was cancelled or has already finished", after=1.0, code="unwanted")
            raise _make_job_gone_failure(request)


def _discard_result_file(writing: BlobWriter, tables: list[ResultFileWriter]) -> None:
    """Remove the file, and close its writers."""
    writing.discard()
    close_result_writers(tables)


def close_result_writers(writers: Iterable[ResultFileWriter]) -> None:
    """Close writers after an error: otherwise the garbage collector closes them, and they write more."""
    for writer in writers:
        with suppress(Exception):
            writer.close()


def _make_job_gone_failure(request: ResultExportRequest) -> Fail:
    return Fail(f"Job {request.job_id} was deleted or purged before its export finished", code="job_gone")
