"""Writes the rows of a table to a stream or a stored file: reads them with COPY and encodes them in a thread."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from uuid import UUID

import msgspec

from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.file_format import Compression, FileFormat
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Wait
from tidemill.exports import export_records
from tidemill.exports.result_export import ExportedFile
from tidemill.exports.serial_thread import SerialThread
from tidemill.exports.table_copy import compile_export_query, copy_query_to_sink
from tidemill.exports.table_export import TableExportPlan
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, DownloadLabel
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers.byte_output import CopyEncoder
from tidemill.store import job_records, quota_records, retention
from tidemill.store.database import Database
from tidemill.store.job_events import compute_rate
from tidemill.telemetry.events import emit

STREAM_CHUNKS_AHEAD = 2  # encoded chunks that may wait for the reader


async def stream_table_export(
    db: Database, plan: TableExportPlan, on_complete: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[bytes]:
    """Yield the chunks of the file, then call ``on_complete`` with the number of rows.

    Closing the generator cancels the query.
    """
    pipe = _ChunkPipe()
    reading = asyncio.create_task(_copy_encoded_rows_into_pipe(db, plan, pipe, on_complete))
    reading.add_done_callback(lambda _: pipe.mark_end())
    try:
        while (chunk := await pipe.get()) is not None:
            yield chunk
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _copy_encoded_rows_into_pipe(
    db: Database, plan: TableExportPlan, pipe: "_ChunkPipe", on_complete: Callable[[int], None]
) -> None:
    started, output = time.monotonic(), _EncodedChunks()
    is_plain = plan.compression is Compression.NONE and plan.format in (FileFormat.CSV, FileFormat.NDJSON)
    encoder = open_copy_encoder(plan.file_spec, output)

    async def write_chunk(chunk: bytes) -> None:
        if is_plain:  # switching to a thread would cost more than the encoding
            encoder.write(chunk)
        else:
            await asyncio.to_thread(encoder.write, chunk)
        await pipe.put(output.drain())

    rows = await copy_query_to_sink(db, compile_export_query(plan), plan.file_spec.postgres_copy_format, write_chunk)
    await asyncio.to_thread(encoder.close)
    await pipe.put(output.drain())
    on_complete(rows)
    _report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started)


class _ChunkPipe:
    """Passes chunks from the writer to the reader. ``put`` waits for a slow reader; ``close`` never waits."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = asyncio.Semaphore(STREAM_CHUNKS_AHEAD)

    async def put(self, chunk: bytes) -> None:
        if chunk:
            await self._slots.acquire()
            self._chunks.put_nowait(chunk)

    async def get(self) -> bytes | None:
        """Return the next chunk; None after the last one."""
        chunk = await self._chunks.get()
        self._slots.release()
        return chunk

    def mark_end(self) -> None:
        self._chunks.put_nowait(None)


class _EncodedChunks:
    """Keeps the output of an encoder until ``drain`` returns it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, chunk: bytes, /) -> int:
        self._written.append(bytes(chunk))
        return len(chunk)

    def flush(self) -> None: ...

    def drain(self) -> bytes:
        written, self._written = self._written, []
        return written[0] if len(written) == 1 else b"".join(written)


EXPORT_CANCEL_CHECK_S = 1.0  # interval of the check whether the export was cancelled


class TableExporter:
    """Reads rows in the event loop and writes them in a thread, which is at most one chunk behind."""

    def __init__(self, db: Database, blobs: BlobStore, *, ttl_hours: int) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def write_table_file(self, item: Item) -> ExportedFile:
        """Write the file and return its description. On any error, remove the partial file and raise the error."""
        job = await self._db.read(job_records.get_job, item.job_id)
        plan = msgspec.convert(job.params["plan"], TableExportPlan)
        name, started = plan.build_file_name(job.key), time.monotonic()
        writing, thread = self._blobs.open_writer(), SerialThread()  # each attempt writes its own file
        writing.label = DownloadLabel(name, plan.file_spec.content_type)
        encoders: list[CopyEncoder] = []
        try:
            rows, cut_cells = await self._write_file(plan, item.job_id, writing, thread, encoders)
            blob, expires_at = await self._set_expiry_and_finish_file(item.job_id, writing, thread)
        except (Conflict, InvalidInput) as error:
            await thread.run_last(lambda: _discard_table_file(writing, encoders))
            raise Fail(str(error), code="unreadable", retryable=True) from error
        except BaseException:
            await thread.run_last(lambda: _discard_table_file(writing, encoders))
            raise
        thread.shut_down_without_waiting()
        _report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started, item.job_id)
        return ExportedFile(
            name=name,
            format=str(plan.format),
            compression=str(plan.compression),
            rows=rows,
            cut_cells=cut_cells,
            size=blob.size,
            sha256=blob.sha256.hex(),
            file_id=blob.id,
            spreadsheet_safe=plan.spreadsheet_safe,
            expires_at=expires_at,
        )

    async def _write_file(
        self,
        plan: TableExportPlan,
        job_id: UUID,
        writing: BlobWriter,
        thread: SerialThread,
        encoders: list[CopyEncoder],
    ) -> tuple[int, int]:
        encoder = await thread.run_after_previous(open_copy_encoder, plan.file_spec, writing)
        encoders.append(encoder)
        last_check = time.monotonic()

        async def write_chunk(chunk: bytes) -> None:
            nonlocal last_check
            await thread.start_after_previous(encoder.write, chunk)
            if time.monotonic() - last_check > EXPORT_CANCEL_CHECK_S:
                await self._stop_unless_still_requested(job_id)
                last_check = time.monotonic()

        rows = await copy_query_to_sink(
            self._db, compile_export_query(plan), plan.file_spec.postgres_copy_format, write_chunk
        )
        await thread.run_after_previous(encoder.close)
        encoders.clear()
        return rows, encoder.cut_cells

    async def _set_expiry_and_finish_file(
        self, job_id: UUID, writing: BlobWriter, thread: SerialThread
    ) -> tuple[Blob, str]:
        """Record when the file expires, then finish it. If the worker dies in between, cleanup removes the file."""
        await self._stop_unless_still_requested(job_id)
        failpoint("export.rows_written")
        expires_at = await self._db.run(retention.set_file_expiry, writing.name, job_id, self._ttl_hours)
        blob = await thread.run_after_previous(writing.finish)
        failpoint("export.file_finished")
        await self._db.run(quota_records.record_stored_file_size, blob.id, job_id, blob.size)
        return blob, expires_at.isoformat()

    async def _stop_unless_still_requested(self, job_id: UUID) -> None:
        """Raise Wait, which ends the attempt, if the export was cancelled or another worker has written its file."""
        if not await self._db.read(export_records.is_export_file_needed, job_id):
            raise Wait("The export was cancelled or has already finished", after=1.0, code="unwanted")


def _discard_table_file(writing: BlobWriter, encoders: list[CopyEncoder]) -> None:
    """Remove the file. Close the encoders here: otherwise the garbage collector closes them, and they write more."""
    writing.discard()
    for encoder in encoders:
        with suppress(Exception):
            encoder.close()


def _report_export_completed(
    resource: str, file_format: str, rows: int, seconds: float, job_id: UUID | None = None
) -> None:
    """Emit ``export.completed``. A stream has no job."""
    emit(
        "export.completed",
        job=job_id,
        resource_type=resource,
        format=file_format,
        total_records=rows,
        duration_ms=round(seconds * 1000),
        rows_per_sec=compute_rate(rows, seconds),
    )
