"""Collecting verdicts and writing them in parts: by size, by interval, at the end, and never unbounded."""

import asyncio
import contextlib
from dataclasses import dataclass

from tidemill.domain.batch import Lease
from tidemill.domain.decide import Verdict
from tidemill.domain.errors import StaleLease
from tidemill.domain.handler import Handler
from tidemill.domain.status import ItemStatus
from tidemill.domain.tally import Tally
from tidemill.engine import logbook, tell
from tidemill.engine.context import Context
from tidemill.engine.logbook import Logbook, Page
from tidemill.store.database import Database, is_refused_data
from tidemill.store.flush import Flushed, flush
from tidemill.store.json import encode
from tidemill.telemetry.events import emit

HIGH_WATER = 0.8


class Flusher:
    """Buffers the verdicts of one leased batch. ``lease`` is what is still in hand."""

    def __init__(self, context: Context, lease: Lease, handler: Handler, page: Page) -> None:
        settings = context.settings
        self.lease = lease
        self.failed = 0
        self.lost = False
        self.columns = context.columns.of(lease)
        self._context = context
        self._handler = handler
        self._page = page
        if lease.isolated:
            self._size = self._bound = 1
        elif handler.flush_size is not None:
            self._size = self._bound = handler.flush_size
        else:
            self._size = context.pace(lease.kind).flush_size(low=settings.batch_size, high=settings.claim_max)
            self._bound = max(settings.flush_buffer, 2 * self._size)
        self._pending: list[Verdict] = []
        self._kick = asyncio.Event()
        self._flushed = asyncio.Event()
        self._closing = False
        self._told_high = False

    def add(self, verdict: Verdict) -> bool:
        """Take a verdict, already recorded in the logbook; True when the giver should wait for room."""
        self._pending.append(verdict)
        waiting = len(self._pending)
        if waiting >= self._size:
            self._kick.set()
        if waiting >= HIGH_WATER * self._bound > self._size:
            self._tell_high(waiting)
        return waiting >= self._bound

    async def room(self) -> None:
        """Until there is room in the buffer again."""
        while len(self._pending) >= self._bound:
            await self._next_flush()

    async def drained(self) -> None:
        """Until what is in the logbook now was written."""
        self._kick.set()
        await self._next_flush()

    def close(self) -> None:
        """No more will come: write what is left and end."""
        self._closing = True
        self._kick.set()

    async def run(self) -> None:
        """Write by size or interval until closed and empty. Raises StaleLease when the lease is lost."""
        interval = self._context.settings.flush_interval_ms / 1000
        while not (self._closing and not self._pending):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._kick.wait(), interval)
            self._kick.clear()
            if self._pending:
                await self._flush()
                self._told_high = False
            self._flushed.set()
            if len(self._pending) >= self._size or self._closing:
                self._kick.set()

    async def _next_flush(self) -> None:
        self._flushed.clear()
        self._kick.set()
        await self._flushed.wait()

    async def _flush(self) -> None:
        verdicts, self._pending = self._pending, []
        area = self._page.turn_over(self.lease.flush_no)
        await self._write(verdicts)
        self._page.restamp(self.lease.flush_no)
        self._page.forget(area)

    async def _write(self, verdicts: list[Verdict]) -> None:
        started = asyncio.get_running_loop().time()
        await self.columns.store(self._context.db)
        written = await write(self._context.db, self.lease, verdicts, seconds=self._lease_seconds())
        if written.result is Flushed.STALE:
            self._context.book.count(logbook.STALE, len(verdicts))
            emit("batch.stale", job=self.lease.job_id, batch=self.lease.batch_id, items=len(verdicts))
            raise StaleLease(f"batch {self.lease.batch_id} belongs to somebody else now")
        self.lease = written.lease
        self._note(written.verdicts, asyncio.get_running_loop().time() - started)

    def _note(self, verdicts: list[Verdict], seconds: float) -> None:
        tally = tell.flushed(self.lease, verdicts, seconds=seconds, fill=len(verdicts) / self._bound)
        count(self._context.book, tally)
        self.failed += tally.failed

    def _lease_seconds(self) -> float:
        return self._context.lease_seconds(self.lease.kind, self.lease.open)

    def _tell_high(self, waiting: int) -> None:
        if not self._told_high:
            self._told_high = True
            fill = round(waiting / self._bound, 2)
            emit("buffer.high", job=self.lease.job_id, batch=self.lease.batch_id, fill=fill)


def count(book: Logbook, tally: Tally) -> None:
    """Add what a flush has written to the child's counters."""
    for counter, n in (
        (logbook.SETTLED, tally.items - tally.retried),
        (logbook.FLUSHES, 1),
        (logbook.RETRIED, tally.retried),
        (logbook.FAILED, tally.failed),
    ):
        book.count(counter, n)


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a flush: the lease as it is now, and the verdicts as they were written."""

    result: Flushed
    lease: Lease
    verdicts: list[Verdict]


async def write(db: Database, lease: Lease, verdicts: list[Verdict], *, seconds: float) -> Written:
    """Flush; if PostgreSQL refuses one of the results, find it by halves: it fails, the others are written."""
    try:
        result = await db.run(flush, lease, verdicts, seconds=seconds)
    except Exception as error:
        if not is_refused_data(error):
            raise
        if len(verdicts) == 1:
            return await write(db, lease, [unstorable(verdicts[0])], seconds=seconds)
        middle = len(verdicts) // 2
        first = await write(db, lease, verdicts[:middle], seconds=seconds)
        if first.result is Flushed.STALE:
            return first
        rest = await write(db, first.lease, verdicts[middle:], seconds=seconds)
        return Written(rest.result, rest.lease, first.verdicts + rest.verdicts)
    return Written(result, lease.flushed(len(verdicts)), verdicts)


def unstorable(verdict: Verdict) -> Verdict:
    """The same verdict as a failure, without the values that PostgreSQL cannot store."""
    reason = "PostgreSQL cannot store what the handler returned"
    return Verdict(
        verdict.seq,
        ItemStatus.FAILED,
        verdict.attempts,
        verdict.duration_ms,
        error=encode({"code": "invalid_result", "reason": reason}),
        code="invalid_result",
    )
