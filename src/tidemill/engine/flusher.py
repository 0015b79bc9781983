"""Collects the verdicts on a batch and writes them by size, at intervals, and at the end."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tidemill.core.batch import Lease
from tidemill.core.decide import Tally, Verdict, count_retry_codes
from tidemill.core.errors import StaleLease
from tidemill.core.kinds import Handler
from tidemill.core.status import ItemStatus
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.failpoints import failpoint
from tidemill.store.database import Database, is_unstorable_value_error
from tidemill.store.jsonb import encode_json
from tidemill.store.outcome_flush import FlushResult, flush_outcomes
from tidemill.telemetry.events import emit

BUFFER_HIGH_WATER_SHARE = 0.8
MAX_EVENT_CODES = 10  # per event: handlers define their own codes
MAX_EVENT_DECISIONS = 5
LOGGED_EXCEPTION_INTERVAL_S = 60.0
LOGGED_EXCEPTIONS_MAX = 100  # types and locations per interval; the tracebacks of others are only stored


class Flusher:
    """The verdicts on one leased batch. ``lease`` is the part of the batch that is not written yet."""

    def __init__(self, context: EngineContext, lease: Lease, handler: Handler, lane_state: LaneState) -> None:
        self.lease = lease
        self.written = Tally()
        self.columns = context.learned_columns.get_for_lease(lease)
        self._batch_items = lease.open
        self._started_at = time.monotonic()
        self._context = context
        self._handler = handler
        self._lane_state = lane_state
        if lease.isolated:
            self._flush_size = self._max_pending = 1
        elif handler.flush_size is not None:
            self._flush_size = self._max_pending = handler.flush_size
        else:
            settings = context.settings
            pace = context.sizing.pace_by_kind[lease.kind]
            self._flush_size = pace.flush_size(low=settings.batch_size, high=settings.claim_max)
            self._max_pending = max(settings.flush_buffer, 2 * self._flush_size)
        self._pending: list[Verdict] = []
        self._flush_requested = asyncio.Event()
        self._flush_finished = asyncio.Event()
        self._is_closing = False
        self._is_high_water_reported = False

    def add_verdict(self, verdict: Verdict, slot: int) -> Awaitable[None] | None:
        """Add the verdict on the item that ran in a slot; return what the slot must await if the buffer is full.

        The verdict is recorded in shared memory first, where it survives the death of this process.
        """
        if not self._lane_state.record_verdict(verdict):
            return self._add_verdict_after_flush(verdict, slot)
        self._lane_state.free_item_slot(slot)
        self._pending.append(verdict)
        waiting = len(self._pending)
        if waiting < self._flush_size:
            return None
        self._flush_requested.set()
        if waiting >= BUFFER_HIGH_WATER_SHARE * self._max_pending > self._flush_size:
            self._report_full_buffer_once(waiting)
        return self._wait_for_room() if waiting >= self._max_pending else None

    async def _add_verdict_after_flush(self, verdict: Verdict, slot: int) -> None:
        self._lane_state.mark_item_answered(slot)
        await self._request_flush_and_wait()
        further_wait = self.add_verdict(verdict, slot)
        if further_wait is not None:
            await further_wait

    async def _wait_for_room(self) -> None:
        while len(self._pending) >= self._max_pending:
            await self._request_flush_and_wait()

    def request_close(self) -> None:
        """Accept no more verdicts; ``run`` writes the rest and returns."""
        self._is_closing = True
        self._flush_requested.set()

    async def run(self) -> None:
        """Write by size or interval until closed and empty; raise StaleLease if the lease is lost."""
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

    async def _request_flush_and_wait(self) -> None:
        self._flush_finished.clear()
        self._flush_requested.set()
        await self._flush_finished.wait()

    async def _flush_pending(self) -> None:
        verdicts, self._pending = self._pending, []
        area = self._lane_state.seal_verdict_area(self.lease.flush_no)
        started = time.monotonic()
        await self.columns.store_new_columns(self._context.db)
        lease_seconds = self._context.sizing.compute_lease_seconds(self.lease.kind, self.lease.open)
        failpoint("flush.before")
        written = await write_verdicts(
            self._context.db, self.lease, verdicts, self._handler, lease_seconds=lease_seconds
        )
        if written.result is FlushResult.STALE:
            self.report_lease_lost(len(verdicts))
            raise StaleLease(f"Lease lost on batch {self.lease.batch_id}: another worker reclaimed it")
        self.lease = written.lease
        fill = len(verdicts) / self._max_pending
        self.report_durable_verdicts(written.verdicts, seconds=time.monotonic() - started, fill=fill)
        self._lane_state.discard_verdict_area(area, next_flush_no=self.lease.flush_no)

    def report_durable_verdicts(
        self,
        verdicts: Sequence[Verdict],
        *,
        sparse_done: int = 0,
        seconds: float | None = None,
        fill: float | None = None,
    ) -> None:
        """Count durable verdicts, and emit the events about them and about the end of the batch."""
        failpoint("flush.after_commit")
        tally = tally_and_emit_flush(self.lease, verdicts, sparse_done=sparse_done, seconds=seconds, fill=fill)
        self._context.shared_state.add_flush_counts(tally)
        total = self.written
        total.add_tally(tally)
        if total.items == self._batch_items:
            elapsed = time.monotonic() - self._started_at
            emit(
                "batch.completed",
                job=self.lease.job_id,
                batch=self.lease.batch_id,
                rows=total.items,
                successes=total.done,
                failures=total.failed,
                not_found=total.not_found,
                skipped=total.skipped,
                retried=total.retried,
                ms=round(elapsed * 1000),
                rows_per_sec=round(total.items / max(elapsed, 1e-6), 1),
            )

    def report_lease_lost(self, items: int) -> None:
        self._context.shared_state.add_stale_count(items)
        emit("batch.stale", job=self.lease.job_id, batch=self.lease.batch_id, items=items)

    def _report_full_buffer_once(self, waiting: int) -> None:
        if not self._is_high_water_reported:
            self._is_high_water_reported = True
            fill = round(waiting / self._max_pending, 2)
            emit("buffer.high", job=self.lease.job_id, batch=self.lease.batch_id, fill=fill)


def tally_and_emit_flush(
    lease: Lease,
    verdicts: Sequence[Verdict],
    *,
    sparse_done: int = 0,
    seconds: float | None = None,
    fill: float | None = None,
) -> Tally:
    """Emit one event for a durable flush, never one per item; ``fill`` is the used share of the buffer."""
    tally = Tally.from_verdicts(verdicts)
    tally.items += sparse_done
    tally.done += sparse_done
    emit(
        "batch.flushed",
        job=lease.job_id,
        batch=lease.batch_id,
        items=tally.items,
        done=tally.done,
        not_found=tally.not_found,
        skipped=tally.skipped,
        failed=tally.failed,
        retried=tally.retried,
        codes=dict(tally.codes.most_common(MAX_EVENT_CODES)),
        fill=None if fill is None else round(fill, 2),
        ms=None if seconds is None else round(seconds * 1000, 1),
    )
    if tally.retried:
        retries = [verdict for verdict in verdicts if verdict.delay is not None]
        codes: Counter[str] = count_retry_codes(retries)
        emit(
            "item.retry",
            job=lease.job_id,
            batch=lease.batch_id,
            items=tally.retried,
            codes=dict(codes.most_common(MAX_EVENT_CODES)),
            decisions=[
                {
                    "seq": verdict.seq,
                    "attempt": verdict.attempts,
                    "delay_s": round(verdict.delay or 0, 2),
                    "code": verdict.code,
                }
                for verdict in retries[:MAX_EVENT_DECISIONS]
            ],
        )
    if tally.retried or tally.failed:
        for verdict, suppressed in _exception_log.select_verdicts_to_log(verdicts):
            assert verdict.exception is not None  # noqa: S101  selected by its exception
            emit(
                "handler.failed",
                job=lease.job_id,
                batch=lease.batch_id,
                seq=verdict.seq,
                attempt=verdict.attempts,
                status=verdict.status.value,
                type=verdict.exception.type,
                traceback=verdict.exception.traceback,
                suppressed=suppressed,
            )
    return tally


class ExceptionLog:
    """Limits the tracebacks in the log: one per minute for each type and location of exceptions of this process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}  # time of the last event, suppressed since then

    def select_verdicts_to_log(self, verdicts: Sequence[Verdict]) -> list[tuple[Verdict, int]]:
        """Return the verdicts to log, each with the number of equal exceptions that were not logged since the last."""
        selected: list[tuple[Verdict, int]] = []
        for verdict in verdicts:
            if verdict.exception is None:
                continue
            key, now = (verdict.exception.type, verdict.exception.location), self._clock()
            logged_at, suppressed = self._logged.get(key, (float("-inf"), 0))
            if now - logged_at < LOGGED_EXCEPTION_INTERVAL_S:
                self._logged[key] = logged_at, suppressed + 1
            elif key in self._logged or self._has_room(now):
                self._logged[key] = now, 0
                selected.append((verdict, suppressed))
        return selected

    def _has_room(self, now: float) -> bool:
        if len(self._logged) >= LOGGED_EXCEPTIONS_MAX:
            self._logged = {
                key: entry for key, entry in self._logged.items() if now - entry[0] < LOGGED_EXCEPTION_INTERVAL_S
            }
        return len(self._logged) < LOGGED_EXCEPTIONS_MAX


_exception_log = ExceptionLog()


@dataclass(frozen=True, slots=True)
class WrittenVerdicts:
    """The result of a flush: the lease after it, and the written verdicts."""

    result: FlushResult
    lease: Lease
    verdicts: list[Verdict]


async def write_verdicts(
    db: Database, lease: Lease, verdicts: list[Verdict], handler: Handler, *, lease_seconds: float
) -> WrittenVerdicts:
    """Write verdicts in one transaction.

    If PostgreSQL cannot store one of the results, bisect the verdicts: that item fails, the others are written.
    """
    try:
        result = await db.run(flush_outcomes, lease, verdicts, lease_s=lease_seconds, after_flush=handler.after_flush)
    except Exception as error:
        if not is_unstorable_value_error(error):
            raise
        if len(verdicts) == 1:
            return await write_verdicts(
                db, lease, [make_failure_of_unstorable_verdict(verdicts[0])], handler, lease_seconds=lease_seconds
            )
        middle = len(verdicts) // 2
        first = await write_verdicts(db, lease, verdicts[:middle], handler, lease_seconds=lease_seconds)
        if first.result is FlushResult.STALE:
            return first
        rest = await write_verdicts(db, first.lease, verdicts[middle:], handler, lease_seconds=lease_seconds)
        return WrittenVerdicts(rest.result, rest.lease, first.verdicts + rest.verdicts)
    return WrittenVerdicts(result, lease.with_flushed(len(verdicts)), verdicts)


def make_failure_of_unstorable_verdict(verdict: Verdict) -> Verdict:
    """Return the verdict as a failure, without the values that PostgreSQL cannot store."""
    reason = "PostgreSQL cannot store the result of the handler"
    return Verdict(
        verdict.seq,
        ItemStatus.FAILED,
        verdict.attempts,
        verdict.duration_ms,
        error=encode_json({"code": "invalid_result", "reason": reason}),
        code="invalid_result",
    )
