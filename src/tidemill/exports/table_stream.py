"""Streams the rows of a table as a file while the database sends them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

from tidemill.core.file_format import Compression, FileFormat
from tidemill.exports.table_copy import compile_export_query, copy_query_to_sink
from tidemill.exports.table_export import TableExportPlan
from tidemill.files.writers import open_copy_encoder
from tidemill.store.database import Database
from tidemill.store.job_events import report_export_completed

STREAM_CHUNKS_AHEAD = 2  # encoded chunks that wait for the reader


async def stream_table_export(
    db: Database, plan: TableExportPlan, on_complete: Callable[[int], None] = lambda _: None
) -> AsyncGenerator[bytes]:
    """The chunks of the file. ``on_complete`` gets the number of rows; closing the generator cancels the query."""
    pipe = _ChunkPipe()
    reading = asyncio.create_task(_copy_into_pipe(db, plan, pipe, on_complete))
    reading.add_done_callback(lambda _: pipe.close())
    try:
        while (chunk := await pipe.get()) is not None:
            yield chunk
        await reading
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await reading


async def _copy_into_pipe(
    db: Database, plan: TableExportPlan, pipe: "_ChunkPipe", on_complete: Callable[[int], None]
) -> None:
    started, output = time.monotonic(), _EncodedChunks()
    is_plain = plan.compression is Compression.NONE and plan.format in (FileFormat.CSV, FileFormat.NDJSON)
    encoder = open_copy_encoder(plan.form, output)

    async def write_chunk(chunk: bytes) -> None:
        if is_plain:  # switching to a thread would cost more than the encoding
            encoder.write(chunk)
        else:
            await asyncio.to_thread(encoder.write, chunk)
        await pipe.put(output.drain())

    rows = await copy_query_to_sink(db, compile_export_query(plan), plan.form.copy_format, write_chunk)
    await asyncio.to_thread(encoder.close)
    await pipe.put(output.drain())
    on_complete(rows)
    report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started)


class _ChunkPipe:
    """Passes chunks from the writer to the reader. ``put`` waits while the reader is behind; ``close`` never waits."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._slots = asyncio.Semaphore(STREAM_CHUNKS_AHEAD)

    async def put(self, chunk: bytes) -> None:
        if chunk:
            await self._slots.acquire()
            self._chunks.put_nowait(chunk)

    async def get(self) -> bytes | None:
        """The next chunk; None after the last one."""
        chunk = await self._chunks.get()
        self._slots.release()
        return chunk

    def close(self) -> None:
        self._chunks.put_nowait(None)


class _EncodedChunks:
    """The output of an encoder, kept until ``drain`` returns it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, chunk: bytes, /) -> int:
        self._written.append(bytes(chunk))
        return len(chunk)

    def flush(self) -> None: ...

    def drain(self) -> bytes:
        written, self._written = self._written, []
        return written[0] if len(written) == 1 else b"".join(written)
