"""Collecting verdicts and writing them in parts: by size, by interval, at the end, and never unbounded."""

import asyncio
import contextlib
from dataclasses import dataclass

from tidemill.core.batch import Lease
from tidemill.core.decide import Tally, Verdict
from tidemill.core.errors import StaleLease
from tidemill.core.kinds import Handler
from tidemill.core.status import ItemStatus
from tidemill.engine import batch_events
from tidemill.engine.children import shared_state as logbook
from tidemill.engine.children.shared_state import LaneState, SharedState
from tidemill.engine.context import EngineContext
from tidemill.store.database import Database, is_unstorable_value
from tidemill.store.jsonb import encode_json
from tidemill.store.outcome_flush import FlushResult, flush_outcomes
from tidemill.telemetry.events import emit

BUFFER_HIGH_WATER_SHARE = 0.8


class Flusher:
    """Buffers the verdicts of one leased batch. ``lease`` is what is still in hand."""

    def __init__(self, context: EngineContext, lease: Lease, handler: Handler, page: LaneState) -> None:
        settings = context.settings
        self.lease = lease
        self.failed_items = 0
        self.is_lease_lost = False
        self.learned_columns = context.learned_columns.get_for_lease(lease)
        self._context = context
        self._handler = handler
        self._lane_state = page
        if lease.isolated:
            self._flush_size = self._max_pending = 1
        elif handler.flush_size is not None:
            self._flush_size = self._max_pending = handler.flush_size
        else:
            self._flush_size = context.get_pace(lease.kind).flush_size(low=settings.batch_size, high=settings.claim_max)
            self._max_pending = max(settings.flush_buffer, 2 * self._flush_size)
        self._pending: list[Verdict] = []
        self._flush_requested = asyncio.Event()
        self._flush_finished = asyncio.Event()
        self._is_closing = False
        self._is_high_water_reported = False

    def add(self, verdict: Verdict) -> bool:
        """Take a verdict, already recorded in the logbook; True when the giver should wait for room."""
        self._pending.append(verdict)
        waiting = len(self._pending)
        if waiting >= self._flush_size:
            self._flush_requested.set()
        if waiting >= BUFFER_HIGH_WATER_SHARE * self._max_pending > self._flush_size:
            self._report_high_water(waiting)
        return waiting >= self._max_pending

    async def wait_for_room(self) -> None:
        """Until there is room in the buffer again."""
        while len(self._pending) >= self._max_pending:
            await self._wait_for_next_flush()

    async def wait_until_drained(self) -> None:
        """Until what is in the logbook now was written."""
        self._flush_requested.set()
        await self._wait_for_next_flush()

    def close(self) -> None:
        """No more will come: write what is left and end."""
        self._is_closing = True
        self._flush_requested.set()

    async def run(self) -> None:
        """Write by size or interval until closed and empty. Raises StaleLease when the lease is lost."""
        interval = self._context.settings.flush_interval_ms / 1000
        while not (self._is_closing and not self._pending):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._flush_requested.wait(), interval)
            self._flush_requested.clear()
            if self._pending:
                await self._flush_pending()
                self._is_high_water_reported = False
            self._flush_finished.set()
            if len(self._pending) >= self._flush_size or self._is_closing:
                self._flush_requested.set()

    async def _wait_for_next_flush(self) -> None:
        self._flush_finished.clear()
        self._flush_requested.set()
        await self._flush_finished.wait()

    async def _flush_pending(self) -> None:
        verdicts, self._pending = self._pending, []
        area = self._lane_state.seal_area(self.lease.flush_no)
        await self._write_pending(verdicts)
        self._lane_state.renumber_area(self.lease.flush_no)
        self._lane_state.discard_area(area)

    async def _write_pending(self, verdicts: list[Verdict]) -> None:
        started = asyncio.get_running_loop().time()
        await self.learned_columns.store_new_columns(self._context.db)
        written = await write_verdicts(
            self._context.db, self.lease, verdicts, self._handler, lease_seconds=self._lease_seconds()
        )
        if written.result is FlushResult.STALE:
            self._context.shared_state.add_to_counter(logbook.STALE_COUNTER, len(verdicts))
            emit("batch.stale", job=self.lease.job_id, batch=self.lease.batch_id, items=len(verdicts))
            raise StaleLease(f"batch {self.lease.batch_id} belongs to somebody else now")
        self.lease = written.lease
        self._record_flush(written.verdicts, asyncio.get_running_loop().time() - started)

    def _record_flush(self, verdicts: list[Verdict], seconds: float) -> None:
        tally = batch_events.emit_batch_flushed(
            self.lease, verdicts, seconds=seconds, fill=len(verdicts) / self._max_pending
        )
        count_flushed_items(self._context.shared_state, tally)
        self.failed_items += tally.failed

    def _lease_seconds(self) -> float:
        return self._context.lease_seconds(self.lease.kind, self.lease.open)

    def _report_high_water(self, waiting: int) -> None:
        if not self._is_high_water_reported:
            self._is_high_water_reported = True
            fill = round(waiting / self._max_pending, 2)
            emit("buffer.high", job=self.lease.job_id, batch=self.lease.batch_id, fill=fill)


def count_flushed_items(shared_state: SharedState, tally: Tally) -> None:
    """Add what a flush has written to the child's counters."""
    for counter, n in (
        (logbook.SETTLED_COUNTER, tally.items - tally.retried),
        (logbook.FLUSHES_COUNTER, 1),
        (logbook.RETRIED_COUNTER, tally.retried),
        (logbook.FAILED_COUNTER, tally.failed),
    ):
        shared_state.add_to_counter(counter, n)


@dataclass(frozen=True, slots=True)
class WrittenVerdicts:
    """What became of a flush: the lease as it is now, and the verdicts as they were written."""

    result: FlushResult
    lease: Lease
    verdicts: list[Verdict]


async def write_verdicts(
    db: Database, lease: Lease, verdicts: list[Verdict], handler: Handler, *, lease_seconds: float
) -> WrittenVerdicts:
    """Flush; if PostgreSQL refuses one of the results, find it by halves: it fails, the others are written."""
    try:
        result = await db.run(flush_outcomes, lease, verdicts, lease_s=lease_seconds, after_flush=handler.after_flush)
    except Exception as error:
        if not is_unstorable_value(error):
            raise
        if len(verdicts) == 1:
            return await write_verdicts(
                db, lease, [make_unstorable_verdict(verdicts[0])], handler, lease_seconds=lease_seconds
            )
        middle = len(verdicts) // 2
        first = await write_verdicts(db, lease, verdicts[:middle], handler, lease_seconds=lease_seconds)
        if first.result is FlushResult.STALE:
            return first
        rest = await write_verdicts(db, first.lease, verdicts[middle:], handler, lease_seconds=lease_seconds)
        return WrittenVerdicts(rest.result, rest.lease, first.verdicts + rest.verdicts)
    return WrittenVerdicts(result, lease.after_flush(len(verdicts)), verdicts)


def make_unstorable_verdict(verdict: Verdict) -> Verdict:
    """The same verdict as a failure, without the values that PostgreSQL cannot store."""
    reason = "PostgreSQL cannot store what the handler returned"
    return Verdict(
        verdict.seq,
        ItemStatus.FAILED,
        verdict.attempts,
        verdict.duration_ms,
        error=encode_json({"code": "invalid_result", "reason": reason}),
        code="invalid_result",
    )
