"""A thread that does one thing after another, for an async caller that may be cancelled.

Built-in: rows of a table as a file, straight from COPY through an encoder into the store.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Wait
from tidemill.exports import export_records
from tidemill.exports.result_export import ExportedFile
from tidemill.exports.table_copy import compile_export_query, copy_query_to_sink
from tidemill.exports.table_export import TableExportPlan
from tidemill.files.blobs.blob_store import Blob, BlobStore, BlobWriter, DownloadLabel
from tidemill.files.writers import open_copy_encoder
from tidemill.files.writers.byte_output import CopyEncoder
from tidemill.store import job_records, retention
from tidemill.store.database import Database
from tidemill.store.job_events import report_export_completed

T = TypeVar("T")


class SerialThread:
    """What was given is done in order, even if nobody waits for it any more."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "desk")
        self._begun: asyncio.Future[Any] | None = None

    async def submit(self, work: Callable[..., Any], *args: Any) -> None:
        """Start, as soon as what was given before is done, and do not wait for the end."""
        await self._wait_for_submitted()
        self._begun = asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        await self._wait_for_submitted()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *args)

    async def run_last(self, work: Callable[[], None]) -> None:
        """Do this last, whatever became of the rest; a caller that is cancelled once more need not wait for it."""
        last = asyncio.get_running_loop().run_in_executor(self._thread, work)
        self.close()
        unfinished = [last] if self._begun is None else [self._begun, last]
        await asyncio.shield(asyncio.gather(*unfinished, return_exceptions=True))

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    async def _wait_for_submitted(self) -> None:
        begun, self._begun = self._begun, None
        if begun is not None:
            await begun


EXPORT_CANCEL_CHECK_S = 1.0  # whether somebody still wants the file


class TableExporter:
    """Reads in the event loop and writes in a thread, a chunk apart: neither gets far ahead of the other."""

    def __init__(self, db: Database, blobs: BlobStore, *, ttl_hours: int) -> None:
        self._db = db
        self._blobs = blobs
        self._ttl_hours = ttl_hours

    async def run(self, item: Item) -> ExportedFile:
        """The file is whole, or there is none."""
        job = await self._db.read(job_records.get_job, item.job_id)
        plan = msgspec.convert(job.params["plan"], TableExportPlan)
        name, started = plan.build_file_name(job.key), time.monotonic()
        writing, desk = self._blobs.write(), SerialThread()  # as of jobs: each attempt has its own
        writing.label = DownloadLabel(name, plan.form.content_type)
        encoders: list[CopyEncoder] = []
        try:
            rows, cut_cells = await self._write_file(plan, item.job_id, writing, desk, encoders)
            blob, expires_at = await self._finish_file(item.job_id, writing, desk)
        except (Conflict, InvalidInput) as error:
            await desk.run_last(lambda: _discard_table_file(writing, encoders))
            raise Fail(str(error), code="unreadable", retryable=True) from error
        except BaseException:
            await desk.run_last(lambda: _discard_table_file(writing, encoders))
            raise
        desk.close()
        report_export_completed(plan.resource, str(plan.format), rows, time.monotonic() - started, job=item.job_id)
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
        self, plan: TableExportPlan, job_id: UUID, writing: BlobWriter, desk: SerialThread, encoders: list[CopyEncoder]
    ) -> tuple[int, int]:
        encoder = await desk.run(open_copy_encoder, plan.form, writing)
        encoders.append(encoder)
        looked = time.monotonic()

        async def write_chunk(chunk: bytes) -> None:
            nonlocal looked
            await desk.submit(encoder.write, chunk)
            if time.monotonic() - looked > EXPORT_CANCEL_CHECK_S:
                await self._check_still_requested(job_id)
                looked = time.monotonic()

        rows = await copy_query_to_sink(self._db, compile_export_query(plan), plan.form.copy_format, write_chunk)
        await desk.run(encoder.close)
        encoders.clear()
        return rows, encoder.cut_cells

    async def _finish_file(self, job_id: UUID, writing: BlobWriter, desk: SerialThread) -> tuple[Blob, str]:
        """When it expires is written first: should nobody live to tell of the file, it goes all the same."""
        await self._check_still_requested(job_id)
        expires_at = await self._db.run(retention.expire_file, writing.name, job_id, self._ttl_hours)
        return await desk.run(writing.finish), expires_at.isoformat()

    async def _check_still_requested(self, job_id: UUID) -> None:
        """A file that nobody wants any more is not made; nor is one that somebody else has made meanwhile."""
        if not await self._db.read(export_records.is_export_active, job_id):
            raise Wait("nobody wants this file any more", after=1.0, code="unwanted")


def _discard_table_file(writing: BlobWriter, encoders: list[CopyEncoder]) -> None:
    """Nothing stays. An encoder that is not closed would write its end whenever the garbage collector finds it."""
    writing.discard()
    for encoder in encoders:
        with suppress(Exception):
            encoder.close()
