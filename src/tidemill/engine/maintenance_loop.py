"""Maintenance: reclaims leases, closes jobs, samples progress, runs bulk operations, and removes files and old rows."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

from tidemill.core.errors import StorageAccessDenied, StorageUnavailable, UnknownJob
from tidemill.core.progress import PROGRESS_SAMPLE_INTERVAL
from tidemill.dispatch import outbox, quarantine
from tidemill.engine.lane import close_and_report_job_if_drained, enforce_failure_policy
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.failpoints import failpoint
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.limits import limiter_records
from tidemill.runtime import FindKindHooks, return_no_kind_hooks
from tidemill.store import (
    batch_leases,
    database_clock,
    duties,
    job_lifecycle,
    operation_records,
    progress_samples,
    retention,
    users,
    workers,
)
from tidemill.store import progress_samples as samples
from tidemill.store import retention as partitions
from tidemill.store.database import Connection, Database
from tidemill.store.job_events import bind_job_fields, report_operation_step
from tidemill.store.operation_records import RunStep
from tidemill.telemetry.events import emit

BLOB_CLEANUP_INTERVAL_S = 300.0
BLOB_CLEANUP_BATCH_FILES = 1_000
UNFINISHED_FILE_MAX_AGE_S = 3_600.0  # no upload pauses for longer


class BlobCleanupLoop(PeriodicLoop):
    """Removes stored files that this machine can reach.

    It removes only files that its own database lists as unneeded, because several databases may share a file store.
    """

    name = "janitor"

    def __init__(self, db: Database, blobs: BlobStore) -> None:
        super().__init__()
        self._db = db
        self._blobs = blobs

    async def tick(self) -> float:
        try:
            await self.remove_unneeded_blobs()
            await asyncio.to_thread(self._blobs.remove_stale_scratch_files, UNFINISHED_FILE_MAX_AGE_S)
        except (StorageUnavailable, StorageAccessDenied) as error:
            emit("store.unavailable", error=str(error))
        return BLOB_CLEANUP_INTERVAL_S

    async def remove_unneeded_blobs(self) -> list[str]:
        """Remove unneeded files that this machine can reach; return their names."""
        removed: list[str] = []
        after = ""
        while unneeded := await self._db.run(retention.list_unneeded_files, after, BLOB_CLEANUP_BATCH_FILES):
            deleted = await asyncio.to_thread(self._blobs.remove_many, unneeded)
            failpoint("cleanup.files_removed")
            await self._db.run(retention.delete_unneeded_file_records, deleted)
            removed += deleted
            after = unneeded[-1]
        if removed:
            emit("file.removed", files=len(removed))
        return removed


SAMPLE_INTERVAL_S = PROGRESS_SAMPLE_INTERVAL.total_seconds()
QUEUE_DEPTH_INTERVAL_S = 10.0


class ProgressSampler:
    """Samples the progress of jobs and the queue depth, as a part of maintenance.

    It samples only jobs that are in progress, or were at the last sample: thousands of waiting jobs cost nothing.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._sampled_at = self._measured_at = float("-inf")
        self._active_jobs: set[UUID] = set()
        self._sampled_jobs: set[UUID] = set()

    async def take_due_samples(self, now: float) -> None:
        """Take the samples that are due at ``now``, a monotonic time."""
        if now - self._sampled_at >= SAMPLE_INTERVAL_S:
            self._sampled_at = now
            await self.sample_active_jobs()
        if now - self._measured_at >= QUEUE_DEPTH_INTERVAL_S:
            self._measured_at = now
            await report_queue_depth(self._db)

    async def sample_active_jobs(self) -> None:
        in_progress = await self._db.run(samples.list_jobs_in_progress)
        candidates = in_progress | self._active_jobs
        if candidates:
            self._sampled_jobs.update(await self._db.run_async_commit(samples.add_progress_samples, sorted(candidates)))
        self._active_jobs = in_progress

    async def thin_samples(self) -> int:
        """Delete surplus samples of jobs that were sampled since the last call; return the number deleted."""
        sampled, self._sampled_jobs = self._sampled_jobs, set()
        return await self._db.run_async_commit(samples.thin_samples, sorted(sampled)) if sampled else 0


class QueueDepthLoop(PeriodicLoop):
    """Reports the queue depth every few seconds, for a process that serves metrics without doing maintenance."""

    name = "queue"

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db

    async def tick(self) -> float:
        await report_queue_depth(self._db)
        return QUEUE_DEPTH_INTERVAL_S


async def report_queue_depth(db: Database) -> progress_samples.QueueDepth:
    """Measure the open items and the outbox, emit the events about them, and return the queue depth."""
    depth = await db.run(progress_samples.read_queue_depth)
    emit(
        "queue.sampled",
        pending=depth.pending,
        processing=depth.processing,
        retry_wait=depth.retry_wait,
        oldest_s=round(depth.oldest_s, 1),
    )
    backlog = await db.read(outbox.read_outbox_backlog)
    emit(
        "outbox.sampled",
        depth=backlog.depth,
        oldest_s=round(backlog.oldest_s, 1),
        quarantined=backlog.quarantined,
    )
    return depth


BULK_OPERATION_POLL_S = 2.0


class BulkOperationLoop(PeriodicLoop):
    """Runs bulk operations step by step. Every process may run it; a lock per operation admits one at a time."""

    name = "bulk"

    def __init__(self, db: Database, feature_steps: Mapping[str, RunStep]) -> None:
        """``feature_steps``: verb of a feature's operation -> the function that runs one step."""
        super().__init__()
        self._db = db
        self._feature_steps = feature_steps

    async def tick(self) -> float:
        step = await self._db.run(operation_records.run_operation_step, None, self._feature_steps)
        if step is None:
            return BULK_OPERATION_POLL_S
        await report_operation_step(self._db, step)
        return 0


MAINTENANCE_INTERVAL_S = 1.0
MAINTENANCE_DUTY_S = 10.0
FOLD_INTERVAL_S = 5.0
FOLD_MIN_DELTAS = 200
HOUSEKEEPING_INTERVAL_S = 300.0
HINT_RESEND_AFTER_S = 60.0


class MaintenanceLoop(PeriodicLoop):
    """Reclaims expired leases, cancels and closes jobs, folds counters, takes samples and creates partitions.

    It also detects that the clock of the database was set back. One worker at a time does it for all.
    """

    name = "maintenance"

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        interval_s: float = MAINTENANCE_INTERVAL_S,
        resend_after_s: float = HINT_RESEND_AFTER_S,
        housekeeping: Sequence[Callable[[Connection], Awaitable[object]]] = (),
        find_kind_hooks: FindKindHooks = return_no_kind_hooks,
    ) -> None:
        """``housekeeping`` are store functions with which features remove their old rows."""
        super().__init__()
        self._find_kind_hooks = find_kind_hooks
        self._housekeeping = housekeeping
        self._resend_after_s = resend_after_s
        self._interval_s = interval_s
        self._db = db
        self._worker = worker
        self._folded_at = self._housekept_at = float("-inf")
        self._resent_at = time.monotonic()
        self._sampler = ProgressSampler(db)

    async def tick(self) -> float:
        duty = await self._db.run(duties.take_or_renew_duty, self.name, self._worker, MAINTENANCE_DUTY_S)
        if duty is None:
            return self._interval_s
        failpoint("maintenance.on_duty")
        await self.recover_from_clock_set_back(duty.behind_s)
        await self.reclaim_expired_leases()
        await self.finalize_due_jobs()
        now = time.monotonic()
        if now - self._folded_at > FOLD_INTERVAL_S:
            await self.fold_tallies(FOLD_MIN_DELTAS)
            self._folded_at = now
        await self._sampler.take_due_samples(now)
        if now - self._resent_at > self._resend_after_s:
            await self.resend_hints_for_stalled_jobs(now - self._resent_at)
            self._resent_at = now
        if now - self._housekept_at > HOUSEKEEPING_INTERVAL_S:
            await self._sampler.thin_samples()
            await self._db.run(partitions.create_missing_partitions)
            await self._db.run(workers.forget_silent_workers)
            await self._db.run(users.forget_expired_sessions)
            await self._db.run(outbox.forget_broker_and_clear_outbox_if_unused)
            await self._db.run(quarantine.delete_surplus_quarantined)
            await self._db.run(limiter_records.forget_idle_members)
            for verb in self._housekeeping:
                await self._db.run(verb)
            self._housekept_at = now
        return 0 if await self.remove_row_chunk_of_deleted_jobs() else self._interval_s

    async def recover_from_clock_set_back(self, behind_s: float = 0.0) -> None:
        seconds = await self._db.run(database_clock.recover_from_clock_set_back, behind_s)
        if seconds is not None:
            emit("clock.rewound", seconds=round(seconds, 1))

    async def reclaim_expired_leases(self) -> int:
        """Reclaim expired leases; return their number."""
        await self._db.run(batch_leases.terminate_sessions_stuck_in_copy, 2 * self._db.timeout_ms / 1000)
        swept = await self._db.run(batch_leases.reclaim_expired_leases)
        for batch_id, job_id, losses in swept:
            async with bind_job_fields(self._db, job_id):
                emit("batch.swept", job=job_id, batch=batch_id, losses=losses)
        return len(swept)

    async def finalize_due_jobs(self) -> None:
        """Fail jobs by their policy, cancel ready batches, and close finished jobs, in this order."""
        for job_id in await self._db.run(job_lifecycle.list_jobs_with_failure_policy):
            await enforce_failure_policy(self._db, job_id)
        while await self._db.run(job_lifecycle.cancel_some_ready_batches):
            pass
        for job_id in await self._db.run(job_lifecycle.list_jobs_that_may_be_drained):
            await close_and_report_job_if_drained(self._db, job_id, self._find_kind_hooks)

    async def resend_hints_for_stalled_jobs(self, window: float = math.inf) -> None:
        """Send another hint for jobs that no worker has claimed from for too long, because the first may be lost."""
        resent = await self._db.run(outbox.add_hints_for_stalled_jobs, self._resend_after_s, window)
        if resent:
            emit("hints.resent", jobs=len(resent))

    async def fold_tallies(self, min_deltas: int) -> None:
        for job_id in await self._db.run(job_lifecycle.list_jobs_to_fold, min_deltas):
            with contextlib.suppress(UnknownJob):  # deleted in the meantime
                await self._db.run(job_lifecycle.fold_tally, job_id)

    async def remove_row_chunk_of_deleted_jobs(self) -> int:
        """Remove a chunk of the rows of deleted jobs; return the number of removed rows."""
        removed = 0
        for job_id in await self._db.run(retention.list_deleted_jobs):
            removed += await self._db.run(retention.delete_row_chunk_of_deleted_job, job_id)
        return removed
