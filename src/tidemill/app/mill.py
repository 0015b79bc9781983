"""The ``Mill``: declares handlers, and submits, follows and controls jobs."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO, Literal, Self
from uuid import UUID

from tidemill.app.mill_submission import MillSubmission, OutputFormat
from tidemill.core.errors import InvalidInput
from tidemill.core.job import Item, ItemRecord, Job
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.core.status import ItemStatus
from tidemill.exports.result_export import ResultExportRequest
from tidemill.exports.table_export_request import parse_file_extension
from tidemill.exports.use_cases import open_export_file, write_results_to_output
from tidemill.files.blobs import open_blob_store
from tidemill.files.formats.image_zip import open_image_of_input
from tidemill.imports import repairs, undo
from tidemill.imports.repair_rules import parse_repair_rule
from tidemill.imports.repairs import RepairPreview
from tidemill.imports.undo import UndoPreview, UndoState
from tidemill.jobs import job_control, queries
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store import job_records
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.terminal.streams import open_atomic_output

ItemStatusName = Literal["pending", "processing", "retry_wait", "done", "not_found", "skipped", "failed", "cancelled"]
SettledStatusName = Literal["done", "not_found", "skipped", "failed", "cancelled"]
WAIT_TIMEOUT_S = 3600.0
WAIT_POLL_MIN_S, WAIT_POLL_MAX_S = 0.05, 1.0
ITERATED_ITEMS_MAX = 1 << 62
ITERATED_ITEMS_AT_ONCE = 500
IMAGES_FORMAT = "images"
IMAGE_FILES_CACHED_MAX = 64  # jobs


class Mill(MillSubmission):
    """Declares handlers, and submits, follows and controls jobs. Methods that use the database have async variants.

    A mill opens its database on first use and keeps it open: one connection pool per event loop, and one for all
    blocking calls of a process. ``close`` and ``with mill:`` close the pool of blocking calls; ``close_async`` and
    ``async with mill:`` close the pool of the running event loop. A pool that is still open is closed when its event
    loop or the process ends.
    """

    @cached_property
    def _image_file_by_job(self) -> dict[UUID, str]:
        """Job -> the stored file with its images."""
        return {}

    def job(self, job_id: UUID) -> Job:
        """Return a job with its progress; raise UnknownJob if it does not exist."""
        return self._run_blocking(self.job_async(job_id))

    async def job_async(self, job_id: UUID) -> Job:
        """Async variant of ``job``."""
        return await (await self.shared_database.get_for_running_loop()).read(job_records.get_job, job_id)

    def wait(self, job_id: UUID, timeout: float = WAIT_TIMEOUT_S) -> Job:
        """Wait until a job is completed, failed or cancelled, and return the job. A paused job keeps the call waiting.

        Raises:
            TimeoutError: The job is still open after ``timeout`` seconds.
        """
        return self._run_blocking(self.wait_async(job_id, timeout))

    async def wait_async(self, job_id: UUID, timeout: float = WAIT_TIMEOUT_S) -> Job:  # noqa: ASYNC109  the same parameters as wait
        """Async variant of ``wait``."""
        deadline, pause = time.monotonic() + timeout, WAIT_POLL_MIN_S
        while not (job := await self.job_async(job_id)).is_closed:
            left = deadline - time.monotonic()
            if left <= 0:
                progress = f"{job.counts.settled} of {job.counts.total} items are settled"
                raise TimeoutError(f"Job {job.key} is still {job.status} after {timeout:g} s: {progress}")
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 1.5, WAIT_POLL_MAX_S)
        return job

    def iter_items(self, job_id: UUID, status: ItemStatusName | None = None) -> Iterator[ItemRecord]:
        """Iterate over a job's items, or only over items with one status. Each has its input and outcome.

        Items are read page by page. An item that changes during the iteration appears with its old or its new state.
        """
        items = self.iter_items_async(job_id, status)
        try:
            while page := self._run_blocking(_read_next_items(items, ITERATED_ITEMS_AT_ONCE)):
                yield from page
        finally:
            self._run_blocking(items.aclose())

    async def iter_items_async(self, job_id: UUID, status: ItemStatusName | None = None) -> AsyncGenerator[ItemRecord]:
        """Async variant of ``iter_items``."""
        db = await self.shared_database.get_for_running_loop()
        selected = None if status is None else ItemStatus(status)
        async with aclosing(queries.iterate_items(db, job_id, selected, limit=ITERATED_ITEMS_MAX)) as rows:
            async for row in rows:
                yield ItemRecord(
                    job_id=job_id,
                    seq=row["seq"],
                    status=ItemStatus(row["status"]),
                    attempts=row["attempts"],
                    input=row["input"],
                    result=row["result"],
                    error=row["error"],
                    updated_at=row["updated_at"],
                )

    def iter_results(self, job_id: UUID) -> Iterator[Any]:
        """Iterate over the results of done items, in the order of the inputs."""
        return (item.result for item in self.iter_items(job_id, "done"))

    async def iter_results_async(self, job_id: UUID) -> AsyncGenerator[Any]:
        """Async variant of ``iter_results``."""
        async with aclosing(self.iter_items_async(job_id, "done")) as items:
            async for item in items:
                yield item.result

    def pause(self, job_id: UUID) -> None:
        """Pause a job. Workers start no further items; running items finish."""
        self._run_blocking(self.pause_async(job_id))

    async def pause_async(self, job_id: UUID) -> None:
        """Async variant of ``pause``."""
        await job_control.pause_job(await self.shared_database.get_for_running_loop(), job_id)

    def resume(self, job_id: UUID) -> None:
        """Resume a paused job."""
        self._run_blocking(self.resume_async(job_id))

    async def resume_async(self, job_id: UUID) -> None:
        """Async variant of ``resume``."""
        await job_control.resume_job(await self.shared_database.get_for_running_loop(), job_id)

    def cancel(self, job_id: UUID) -> None:
        """Cancel the waiting items of a job. Running items finish and keep their results."""
        self._run_blocking(self.cancel_async(job_id))

    async def cancel_async(self, job_id: UUID) -> None:
        """Async variant of ``cancel``."""
        runtime = await self._make_runtime_for_running_loop()
        await job_control.cancel_job(runtime.db, job_id, find_kind_hooks=runtime.find_kind_hooks)

    def reprocess(
        self,
        job_id: UUID,
        *,
        statuses: Sequence[SettledStatusName] = ("failed", "not_found"),
        codes: Sequence[str] | None = None,
        rows: Sequence[int] | None = None,
        reset_attempts: bool = True,
    ) -> int:
        """Requeue settled items of a job and return the number of requeued items.

        Args:
            job_id: The job. A closed job is reopened.
            statuses: Requeue items with these statuses.
            codes: Requeue only items with these error codes.
            rows: Requeue only these rows, counted from 1.
            reset_attempts: Whether to reset the attempt counts. If not, permanent failures do not run again.
        """
        return self._run_blocking(
            self.reprocess_async(job_id, statuses=statuses, codes=codes, rows=rows, reset_attempts=reset_attempts)
        )

    async def reprocess_async(
        self,
        job_id: UUID,
        *,
        statuses: Sequence[SettledStatusName] = ("failed", "not_found"),
        codes: Sequence[str] | None = None,
        rows: Sequence[int] | None = None,
        reset_attempts: bool = True,
    ) -> int:
        """Async variant of ``reprocess``."""
        selection = ReprocessSelection(
            statuses=[ItemStatus(status) for status in statuses],
            seqs=None if rows is None else [row - 1 for row in rows],
            codes=codes,
            reset_attempts=reset_attempts,
        )
        runtime = await self._make_runtime_for_running_loop()
        operation = await reprocess_items(runtime.db, job_id, selection, find_kind_hooks=runtime.find_kind_hooks)
        return operation.items

    def repair(self, job_id: UUID, cause: str, rule: Mapping[str, Any], *, column: str | None = None) -> int:
        """Fix all rows of an import that have an error, with one rule, and requeue them. Return their number.

        Args:
            job_id: The import. A closed import is reopened.
            cause: The error code of the rows, such as ``email.pattern``.
            rule: The rule, as in the HTTP API: ``{"type": "replace", "find": ",", "replacement": "."}``.
            column: The column of the file that the rule reads. The default is the column of the error.
        """
        return self._run_blocking(self.repair_async(job_id, cause, rule, column=column))

    async def repair_async(
        self, job_id: UUID, cause: str, rule: Mapping[str, Any], *, column: str | None = None
    ) -> int:
        """Async variant of ``repair``."""
        runtime, job = await self._make_runtime_for_running_loop(), await self.job_async(job_id)
        request = repairs.RepairRequest(cause, parse_repair_rule(rule), column)
        return (await repairs.start_repair(runtime, job, request, by=LOCAL_USER_ID)).items

    def preview_repair(
        self, job_id: UUID, cause: str, rule: Mapping[str, Any], *, column: str | None = None
    ) -> RepairPreview:
        """Return what ``repair`` would do with the first rows. Nothing is changed."""
        return self._run_blocking(self.preview_repair_async(job_id, cause, rule, column=column))

    async def preview_repair_async(
        self, job_id: UUID, cause: str, rule: Mapping[str, Any], *, column: str | None = None
    ) -> RepairPreview:
        """Async variant of ``preview_repair``."""
        runtime, job = await self._make_runtime_for_running_loop(), await self.job_async(job_id)
        return await repairs.preview_repair(runtime, job, repairs.RepairRequest(cause, parse_repair_rule(rule), column))

    def export_results(
        self,
        job_id: UUID,
        file: str | PathLike[str],
        *,
        columns: Sequence[str] = (),
        statuses: Sequence[ItemStatusName] = (),
        format: OutputFormat | None = None,  # noqa: A002  the name of this option in all interfaces
        flatten: bool = False,
        spreadsheet_safe: bool = False,
    ) -> int:
        """Write the results of a job to a file and return the number of rows. No worker is needed.

        The file has the columns of the input, then those of the results, then the state of each item. It gets its name
        when it is complete.

        Args:
            job_id: The job. It may still run: the rows show its state at one moment.
            file: The path of the file. Its suffix sets the format and the compression, such as ``.csv.gz``.
            columns: The columns in order, such as ``["sku", "result.price", "_status"]``; all by default.
            statuses: Write only items with these statuses.
            format: The format, if the suffix does not set it.
            flatten: Whether each field of a nested object has a column, such as ``price.amount``.
            spreadsheet_safe: Whether to put an apostrophe before text that a spreadsheet could execute.
        """
        return self._run_blocking(
            self.export_results_async(
                job_id,
                file,
                columns=columns,
                statuses=statuses,
                format=format,
                flatten=flatten,
                spreadsheet_safe=spreadsheet_safe,
            )
        )

    async def export_results_async(
        self,
        job_id: UUID,
        file: str | PathLike[str],
        *,
        columns: Sequence[str] = (),
        statuses: Sequence[ItemStatusName] = (),
        format: OutputFormat | None = None,  # noqa: A002  the name of this option in all interfaces
        flatten: bool = False,
        spreadsheet_safe: bool = False,
    ) -> int:
        """Async variant of ``export_results``."""
        path = Path(file)
        format_of_name, compression = parse_file_extension(path.name)
        if format is None and format_of_name is None:
            raise InvalidInput(f'Cannot detect the format of "{path}" from its suffix. Set "format".')
        request = ResultExportRequest.create(
            job_id,
            format or format_of_name or "",
            statuses,
            spreadsheet_safe=spreadsheet_safe,
            columns=columns,
            flatten=flatten,
            compression=compression,
        )
        runtime, job = await self._make_runtime_for_running_loop(), await self.job_async(job_id)
        with open_atomic_output(path) as output:
            return await write_results_to_output(runtime, job, request, output)

    def undo_import(self, job_id: UUID, *, redo: bool = False) -> UndoState:
        """Undo an import, or with ``redo`` reverse its undos. Return the numbers of reversed, kept and blocked rows.

        Rows that have changed since the import are kept, and rows that other rows refer to are blocked.
        """
        return self._run_blocking(self.undo_import_async(job_id, redo=redo))

    async def undo_import_async(self, job_id: UUID, *, redo: bool = False) -> UndoState:
        """Async variant of ``undo_import``."""
        runtime, job = await self._make_runtime_for_running_loop(), await self.job_async(job_id)
        await undo.start_undo(runtime, job, redo=redo, by=LOCAL_USER_ID)
        return await undo.read_undo_state(runtime, job)

    def preview_undo(self, job_id: UUID, *, redo: bool = False) -> UndoPreview:
        """Return how many rows ``undo_import`` would reverse, keep and not be able to reverse. Nothing is changed."""
        return self._run_blocking(self.preview_undo_async(job_id, redo=redo))

    async def preview_undo_async(self, job_id: UUID, *, redo: bool = False) -> UndoPreview:
        """Async variant of ``preview_undo``."""
        runtime, job = await self._make_runtime_for_running_loop(), await self.job_async(job_id)
        return await undo.preview_complete_undo(runtime, job, redo=redo)

    def open_export(self, job_id: UUID) -> BinaryIO:
        """Open the file of a completed export. The caller must close the file. Raise Conflict if there is no file."""
        return self._run_blocking(self.open_export_async(job_id))

    async def open_export_async(self, job_id: UUID) -> BinaryIO:
        """Async variant of ``open_export``."""
        runtime = await self._make_runtime_for_running_loop()
        return (await open_export_file(runtime.db, runtime.blobs, await self.job_async(job_id))).file

    def open_image(self, item: Item) -> IO[bytes]:
        """Open the image of an item. The caller must close it.

        The input selects one of the images that were uploaded with the item's own job. It cannot refer to other files.

        Raises:
            InvalidInput: The job has no images, or no image for this item.
        """
        return self._run_blocking(self.open_image_async(item))

    async def open_image_async(self, item: Item) -> IO[bytes]:
        """Async variant of ``open_image``."""
        file_id = self._image_file_by_job.get(item.job_id)
        if file_id is None:
            job = await self.job_async(item.job_id)
            if job.source != IMAGES_FORMAT or job.file_id is None:
                raise InvalidInput(f"Job {job.key} has no images: none were uploaded with it")
            while len(self._image_file_by_job) >= IMAGE_FILES_CACHED_MAX:
                self._image_file_by_job.pop(next(iter(self._image_file_by_job)))
            file_id = self._image_file_by_job[item.job_id] = job.file_id
        return await asyncio.to_thread(open_image_of_input, open_blob_store(self.settings.blobs), file_id, item.input)

    def close(self) -> None:
        """Close the connections that blocking calls use. The next call reopens them."""
        self.shared_database.close_background_loop()

    async def close_async(self) -> None:
        """Close the connections that the running event loop uses. The next call reopens them."""
        await self.shared_database.close_for_running_loop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()


async def _read_next_items(items: AsyncIterator[ItemRecord], count: int) -> list[ItemRecord]:
    """Read up to ``count`` items."""
    taken: list[ItemRecord] = []
    async for item in items:
        taken.append(item)
        if len(taken) == count:
            break
    return taken


builtin_mill = Mill()  # for workers that run only built-in kinds
