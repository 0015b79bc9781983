"""One lane of a worker: claim, process, decide, flush, again and again."""

import asyncio
import time
from uuid import uuid4

from tidemill.core.batch import Lease
from tidemill.core.errors import StaleLease
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.engine import batch_events, finalize
from tidemill.engine.children import shared_state
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.claimer import BatchClaimer
from tidemill.engine.context import EngineContext
from tidemill.engine.flusher import Flusher, count_flushed_items
from tidemill.engine.loop import Loop
from tidemill.engine.run_batch import BatchExecutor, BatchInterrupted
from tidemill.engine.run_items import ItemExecutor
from tidemill.store import batch_leases
from tidemill.store import item_records as store
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import emit


class Lane(Loop):
    """Turns one batch at a time."""

    name = "lane"

    def __init__(self, context: EngineContext, claimer: BatchClaimer, page: LaneState) -> None:
        super().__init__()
        self._context = context
        self._claimer = claimer
        self._lane_state = page

    async def tick(self) -> float:
        lease_id = uuid4()
        self._lane_state.begin_lease(lease_id)
        lease = await self._claimer.claim(lease_id)
        if lease is None:
            self._lane_state.end_lease()
            return self._claimer.poll_interval_s
        with batch_events.track_batch(lease):
            try:
                await self._process_batch(lease)
            except Exception:
                # A bug, or a schema that is not ours. Nobody works on the batch any more: it must not stay leased.
                await self._context.db.run(batch_leases.release_batch, lease, after_crash=True, losses=1)
                emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
                self._lane_state.end_lease()
                raise
        self._lane_state.end_lease()  # not for what ends the process: its parent reads the page then
        return 0

    async def _process_batch(self, lease: Lease) -> None:
        handler = self._context.handlers.get(lease.kind)
        self._lane_state.set_timeout(handler.timeout)
        async with self._context.isolation_lock.hold(exclusive=lease.isolated):
            read = store.read_batch_items_aggregated if handler.is_batch else store.read_batch_items
            items = await self._context.db.run_async_commit(read, lease, exact=handler.exact)
            turn = self._run_batch_handler if handler.is_batch else self._run_item_handler
            failed = await turn(lease, handler, items)
        await finalize.finalize_after_batch(self._context.db, lease.job_id, failed=failed)

    async def _run_item_handler(self, lease: Lease, handler: Handler, items: list[Item]) -> int:
        """How many items failed."""
        flusher = Flusher(self._context, lease, handler, self._lane_state)
        started = finished = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(flusher.run())
                await ItemExecutor(self._context, handler, self._lane_state, flusher, isolated=lease.isolated).run(
                    items
                )
                finished = time.monotonic()  # the last flush is not the items' time: of one alone it would be the most
                flusher.close()
        except* StaleLease:
            flusher.is_lease_lost = True
        if not flusher.is_lease_lost:
            await self._release_unfinished(flusher.lease)
            self._record_pace(lease, lease.open - flusher.lease.open, finished - started)
        return flusher.failed_items

    async def _run_batch_handler(self, lease: Lease, handler: Handler, items: list[Item]) -> int:
        """How many items failed."""
        if self._context.is_stopping:
            await self._release_unfinished(lease)
            return 0
        run = BatchExecutor(self._context, lease, handler, self._lane_state)
        try:
            result = await run.run(items)
        except BatchInterrupted:
            await self._release_unfinished(lease)
            return 0
        finally:
            self._record_pace(lease, len(items), run.handler_seconds)
        if result is FlushResult.STALE:
            self._context.shared_state.add_to_counter(shared_state.STALE_COUNTER, len(items))
            emit("batch.stale", job=lease.job_id, batch=lease.batch_id, items=len(items))
        if result is not FlushResult.APPLIED:
            return 0
        tally = batch_events.emit_batch_flushed(
            lease, run.decision.verdicts, seconds=None, sparse_done=run.decision.sparse_done
        )
        count_flushed_items(self._context.shared_state, tally)
        await self._release_unfinished(lease.after_flush(len(items)))
        return tally.failed

    def _record_pace(self, lease: Lease, items: int, seconds: float) -> None:
        # One that must run alone says nothing of the others' pace, and neither does a batch that was never begun.
        if seconds > 0 and not lease.isolated:
            self._context.record_pace(lease.kind, items, seconds)

    async def _release_unfinished(self, lease: Lease) -> None:
        if lease.open:
            await self._context.db.run(batch_leases.release_batch, lease)
            emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
