"""One lane of a worker process: claim a batch, run it, decide its outcomes, flush them, finalize its job."""

import asyncio
import time
from collections.abc import Awaitable
from uuid import UUID, uuid4

from tidemill.core.batch import Lease
from tidemill.core.child_exit import POISON_EXPIRY_COUNT
from tidemill.core.decide import make_lost_worker_failure
from tidemill.core.errors import StaleLease
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import BatchExceptions, Outcome
from tidemill.engine.admission import Admission
from tidemill.engine.batch_handler_executor import BatchHandlerExecutor, BatchInterrupted
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.claimer import BatchClaimer
from tidemill.engine.context import EngineContext
from tidemill.engine.flusher import Flusher, write_verdicts
from tidemill.engine.item_handler_executor import ItemHandlerExecutor
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.verdicts import BatchDecision, decide, decide_batch
from tidemill.failpoints import failpoint
from tidemill.runtime import FindKindHooks
from tidemill.store import batch_leases, item_records, job_lifecycle
from tidemill.store.database import Database
from tidemill.store.job_events import bind_job_fields, report_job_closed
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import bind_fields, emit


class Lane(PeriodicLoop):
    """Processes one batch at a time."""

    name = "lane"

    def __init__(self, context: EngineContext, claimer: BatchClaimer, lane_state: LaneState) -> None:
        super().__init__()
        self._context = context
        self._claimer = claimer
        self._lane_state = lane_state

    async def tick(self) -> float:
        """Claim → run → decide → flush → finalize, for one batch."""
        context, lease_id = self._context, uuid4()
        self._lane_state.reset_and_record_lease(lease_id)
        lease = await self._claimer.claim(lease_id, self)
        if lease is None:
            self._lane_state.clear_lease()
            return self._claimer.poll_interval_s
        self._has_worked = True  # even if this first batch damages the process
        handler = context.handlers.get(lease.kind)
        with bind_fields(**lease.event_fields):
            emit(
                "batch.claimed",
                job=lease.job_id,
                kind=lease.kind,
                batch=lease.batch_id,
                size=lease.open,
                isolated=lease.isolated,
            )
            try:
                if lease.expiries >= POISON_EXPIRY_COUNT:
                    flusher = await self._fail_first_item_as_poison(lease, handler)
                else:
                    async with context.isolation_lock.hold(exclusive=lease.isolated):
                        run = self._run_batch_handler if handler.is_batch else self._run_item_handler
                        flusher = await run(lease, handler)
                await fail_or_close_job_if_due(
                    context.db, lease.job_id, context.find_kind_hooks, failed=flusher.written.failed
                )
            except Exception:
                # A bug, or a schema of another version. Release the batch, or it would stay leased.
                await context.db.run(batch_leases.release_rest_of_batch, lease, after_crash=True, losses=1)
                emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
                self._lane_state.clear_lease()
                raise
        self._lane_state.clear_lease()  # not in a finally: if the process ends here, its parent needs the lease
        return 0

    async def _run_item_handler(self, lease: Lease, handler: Handler) -> Flusher:
        context = self._context
        self._lane_state.set_timeout(handler.timeout)
        items = await context.db.read(item_records.read_unsettled_items, lease, exact=handler.exact)
        failpoint("read.items")
        admission = Admission(context, handler, lease)
        flusher = Flusher(context, lease, handler, self._lane_state)
        columns, semaphore = flusher.columns, admission.semaphore

        def buffer_verdict(item: Item, outcome: Outcome, duration_ms: int, slot: int) -> Awaitable[None] | None:
            verdict = decide(item, outcome, handler, duration_ms, columns, semaphore.backoff_factor)
            return flusher.add_verdict(verdict, slot)

        started = finished = time.monotonic()
        is_lease_lost = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(flusher.run())
                await ItemHandlerExecutor(context, handler, self._lane_state, admission, buffer_verdict).run(items)
                finished = time.monotonic()  # the last flush is not part of the items' time
                flusher.request_close()
        except* StaleLease:
            is_lease_lost = True
        if not is_lease_lost:
            await self._record_pace_and_release(flusher.lease, lease.open - flusher.lease.open, finished - started)
        return flusher

    async def _run_batch_handler(self, lease: Lease, handler: Handler) -> Flusher:
        """Run a batch through a set-based handler; the executor writes its outcomes in one transaction."""
        context = self._context
        self._lane_state.set_timeout(handler.timeout)
        items = await context.db.read(item_records.read_unsettled_items_fast, lease, exact=handler.exact)
        admission = Admission(context, handler, lease)
        flusher = Flusher(context, lease, handler, self._lane_state)
        columns, semaphore = flusher.columns, admission.semaphore

        def decide_items(outcomes: BatchExceptions, seconds: float) -> BatchDecision:
            return decide_batch(items, outcomes, lease, handler, seconds, columns, semaphore.backoff_factor)

        executor = BatchHandlerExecutor(context, lease, handler, self._lane_state, admission, columns, decide_items)
        try:
            result = await executor.run(items)
        except BatchInterrupted:
            await self._record_pace_and_release(lease, 0, 0.0)
            return flusher
        if result is FlushResult.APPLIED:
            flusher.report_durable_verdicts(executor.decision.verdicts, sparse_done=executor.decision.sparse_done)
            lease = lease.with_flushed(len(items))
        elif result is FlushResult.STALE:
            flusher.report_lease_lost(len(items))
        is_over = result is not FlushResult.APPLIED  # stale, written before, postponed or split: the lease is gone
        # A batch that failed shows the pace only if it was large. A part of a split batch has a few rows, and one of
        # them may have taken a minute: claims of other jobs would shrink to one row.
        is_typical = executor.has_handler_returned or 2 * len(items) >= context.sizing.get_max_batch_items(handler)
        seconds = executor.handler_seconds if is_typical else 0.0
        await self._record_pace_and_release(lease, len(items), seconds, release=not is_over)
        return flusher

    async def _fail_first_item_as_poison(self, lease: Lease, handler: Handler) -> Flusher:
        """Fail the item during whose attempts the leases expired, without another attempt; release the others."""
        context, flusher = self._context, Flusher(self._context, lease, handler, self._lane_state)
        items = (await context.db.read(item_records.read_unsettled_items, lease, exact=handler.exact))[:1]
        failure = make_lost_worker_failure(lease.expiries)
        verdicts = [decide(item._replace(attempt=item.attempt - 1), failure, handler, 0) for item in items]
        seconds = context.sizing.compute_lease_seconds(lease.kind, lease.open)
        written = await write_verdicts(context.db, lease, verdicts, handler, lease_seconds=seconds)
        if written.result is FlushResult.STALE:
            flusher.report_lease_lost(len(verdicts))
            return flusher
        for item in items:
            emit("item.poison", job=lease.job_id, seq=item.seq)
        flusher.report_durable_verdicts(written.verdicts)
        await self._record_pace_and_release(written.lease, 0, 0.0)
        return flusher

    async def _record_pace_and_release(self, lease: Lease, items: int, seconds: float, *, release: bool = True) -> None:
        """Record the pace of a batch, and release its unsettled items."""
        if seconds > 0 and not lease.isolated:  # isolated items and batches that did not start would distort the pace
            self._context.sizing.record_pace(lease.kind, items, seconds)
        if release and lease.open:
            failpoint("release.before")
            await self._context.db.run(batch_leases.release_rest_of_batch, lease)
            emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)


async def fail_or_close_job_if_due(db: Database, job_id: UUID, find_kind_hooks: FindKindHooks, *, failed: int) -> None:
    """Fail the job if its failure policy requires it, and close it if it has no open items.

    The worker calls this after each batch; the maintenance loop does the same for all jobs, later.
    """
    if failed:
        await enforce_failure_policy(db, job_id)
    if await db.read(job_lifecycle.has_no_open_batch, job_id):
        await close_and_report_job_if_drained(db, job_id, find_kind_hooks)


async def close_and_report_job_if_drained(db: Database, job_id: UUID, find_kind_hooks: FindKindHooks) -> None:
    job = await db.run(job_lifecycle.close_job_if_drained, job_id)
    if job is not None:
        failpoint("close.after_commit")
        hooks = find_kind_hooks(job.kind)
        report_job_closed(job, None if hooks is None else hooks.after_close)


async def enforce_failure_policy(db: Database, job_id: UUID) -> None:
    reason = await db.run(job_lifecycle.enforce_failure_policy, job_id)
    if reason is not None:
        async with bind_job_fields(db, job_id):
            emit("job.failed", job=job_id, reason=reason)
