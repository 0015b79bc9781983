"""Downloads the sources of jobs that have a URL, several at a time, before the ingester reads them."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import UUID, uuid4

from tidemill.core.errors import DiskFull, Interrupted, QuotaExceeded, StorageUnavailable, TidemillError
from tidemill.core.quotas import Quota
from tidemill.engine.context import EngineContext
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.failpoints import failpoint
from tidemill.store import ingestion as store
from tidemill.store import job_lifecycle, quota_records
from tidemill.store.ingestion import IngestLease
from tidemill.telemetry.events import bind_fields, emit

MAX_FETCH_LEASE_MISSES = 2  # a single miss may be a conflict with another statement on the same row


@dataclass(frozen=True, slots=True)
class _StorageRoom:
    """The limits of a job's owner, and the bytes that the owner's other files store."""

    quota: Quota
    used: int

    def check(self, size: int) -> None:
        """Raise QuotaExceeded if a file of this size does not fit."""
        self.quota.check_file(self.used, size)


class FetchProgress:
    """The progress of one download. The thread that downloads updates it and checks whether to continue."""

    def __init__(self, context: EngineContext) -> None:
        self.is_over = False
        self.fetched_bytes = 0
        self.total_bytes: int | None = None
        self._context = context

    def should_continue(self) -> bool:
        return not self.is_over and not self._context.is_stopping

    def report(self, fetched_bytes: int, total_bytes: int | None) -> None:
        self.fetched_bytes, self.total_bytes = fetched_bytes, total_bytes

    @property
    def known_bytes(self) -> int:
        return max(self.fetched_bytes, self.total_bytes or 0)

    def exceeds(self, room: _StorageRoom) -> bool:
        try:
            room.check(self.known_bytes)
        except QuotaExceeded:
            return True
        return False


class SourceFetcher(PeriodicLoop):
    """Downloads sources into the blob store. Each download holds the ingest lease of its job and extends it."""

    name = "fetch"

    def __init__(self, context: EngineContext) -> None:
        super().__init__()
        self.only_job_id: UUID | None = None  # download only for this job, and wait for it
        self._context = context
        self._threads = ThreadPoolExecutor(context.settings.fetches, "fetch")
        self._downloads: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        await super().run()
        if self._downloads:
            await asyncio.wait(self._downloads)

    async def tick(self) -> float:
        context = self._context
        poll_s = context.settings.poll_ms / 1000
        if len(self._downloads) >= context.settings.fetches:
            return poll_s
        lease_id = uuid4()
        lease = await context.db.run(
            store.take_fetch_lease,
            context.handlers.kinds(),
            lease_id=lease_id,
            lease=self._lease_seconds,
            worker=context.worker,
            job_id=self.only_job_id,
            per_user=context.settings.fetches_per_user,
        )
        if lease is None:
            return poll_s
        download = asyncio.create_task(self._fetch_and_record_result(lease, lease_id))
        self._downloads.add(download)
        download.add_done_callback(self._forget_download)
        if self.only_job_id is not None:
            await download
        return 0

    async def wait_for_downloads(self) -> None:
        """Wait until no download is running."""
        while self._downloads:
            await asyncio.wait(self._downloads)

    def _forget_download(self, download: "asyncio.Task[None]") -> None:
        self._downloads.discard(download)
        if not download.cancelled() and (error := download.exception()) is not None:
            emit("loop.failed", loop=self.name, error=str(error))
        self.wake()

    async def _fetch_and_record_result(self, lease: IngestLease, lease_id: UUID) -> None:
        """Download one source. If the download fails, fail the job; if it is interrupted, release the lease."""
        db = self._context.db
        with bind_fields(**lease.event_fields):
            failpoint("fetch.leased")
            try:
                room = await self._read_storage_room(lease)
                size, is_new = await self._download(lease, lease_id, room)
                # The job has the file from now on, also if it does not fit and the job fails.
                await db.run(quota_records.record_stored_file_size, lease.source.blob, lease.job_id, size)
                room.check(size)
            except Interrupted:
                await db.run(store.release_ingest_lease, lease.job_id, lease_id)
            except StorageUnavailable as error:
                await db.run(store.release_ingest_lease, lease.job_id, lease_id)
                emit("store.unavailable", error=str(error))
            except (TidemillError, OSError) as error:
                await self._fail_job_and_report(lease, lease_id, error)
            else:
                failpoint("fetch.stored")
                await db.run(store.finish_fetch, lease.job_id, lease_id, size if is_new else None)

    async def _read_storage_room(self, lease: IngestLease) -> _StorageRoom:
        db = self._context.db
        _, quota = await db.read(quota_records.read_quota_of_job, lease.job_id, self._context.settings.default_quota)
        used = await db.read(quota_records.count_stored_bytes, lease.owner_id, lease.source.blob)
        return _StorageRoom(quota, used)

    async def _download(self, lease: IngestLease, lease_id: UUID, room: _StorageRoom) -> tuple[int, bool]:
        """Return the size of the source, and whether it was downloaded now; raise QuotaExceeded if it does not fit."""
        progress, source = FetchProgress(self._context), lease.source
        loop = asyncio.get_running_loop()
        download = loop.run_in_executor(self._threads, self._context.fetch_source, source, progress)
        misses = 0
        while not (await asyncio.wait([download], timeout=self._context.settings.poll_ms / 1000))[0]:
            misses = 0 if await self._record_progress(lease.job_id, lease_id, progress) else misses + 1
            if misses >= MAX_FETCH_LEASE_MISSES or progress.exceeds(room):
                progress.is_over = True
        try:
            return download.result()
        except Interrupted:
            room.check(progress.known_bytes)
            raise

    async def _record_progress(self, job_id: UUID, lease_id: UUID, progress: FetchProgress) -> bool:
        try:
            return await self._context.db.run(
                store.record_fetch_progress,
                job_id,
                lease_id,
                fetched_bytes=progress.fetched_bytes,
                total_bytes=progress.total_bytes,
                lease=self._lease_seconds,
            )
        except Exception:  # noqa: BLE001  a database that does not respond is no reason to stop
            return True

    async def _fail_job_and_report(self, lease: IngestLease, lease_id: UUID, error: Exception) -> None:
        db, idle = self._context.db, FetchProgress(self._context)
        if not await self._record_progress(lease.job_id, lease_id, idle):
            return  # the lease is lost: the worker that holds it now gets the error itself
        prefix = "" if isinstance(error, DiskFull | QuotaExceeded) else "Cannot read the source: "
        reason = f"{prefix}{error}"
        await db.run(job_lifecycle.fail_job, lease.job_id, reason)
        await db.run(store.release_ingest_lease, lease.job_id, lease_id)
        emit("job.failed", job=lease.job_id, reason=reason)

    @property
    def _lease_seconds(self) -> float:
        return self._context.settings.lock_floor_ms / 1000
