"""Running a whole batch through a set-based handler: one transaction, or nothing."""

import asyncio
import inspect
import itertools
import time
from collections.abc import Sequence
from typing import Any

from tidemill.domain.batch import Lease, cut_halves
from tidemill.domain.decide import Verdict, describe, timed_out
from tidemill.domain.handler import Handler
from tidemill.domain.item import Item
from tidemill.domain.outcome import Abort, Done, Exceptions, Fail, Outcome, Retry
from tidemill.domain.throttle import is_throttle
from tidemill.engine.context import Context
from tidemill.engine.limits.permit import is_told
from tidemill.engine.logbook import Page
from tidemill.engine.verdicts import translate
from tidemill.engine.whole import Decided, Decider, all_of, hear
from tidemill.store import flush as store
from tidemill.store import jobs, leases
from tidemill.store.database import Connection, is_contention, is_full, is_refused_data, is_timeout, is_transient
from tidemill.store.flush import Flushed
from tidemill.telemetry.events import emit

WATCH_S = 0.1
MAX_CONTENTION = 5  # tries at a transaction that others stand in the way of
LOCKED_S = 10.0  # that it waits for one of them
MAX_FULL = 60  # tries, about a second apart, at a server whose disk is full


class LetGo(Exception):
    """The grace is over: the batch goes back as it was."""


class BatchRun:
    """The items of one batch through a handler that takes them all at once."""

    def __init__(self, context: Context, lease: Lease, handler: Handler, page: Page) -> None:
        self._context = context
        self._lease = lease
        self._handler = handler
        self._page = page
        self._crew = context.crew(handler)
        self._entrance = context.limits.entrance(handler)
        self._said: Outcome = Done()  # of the batch as a whole: a refusal if there was one
        self.decided = Decided()
        self.seconds = 0.0  # in the handler, or until it was let go of
        self._returned = False
        self._let_go = False
        self._columns = context.columns.of(lease)
        self._decider = Decider(lease, handler, self._columns)

    async def run(self, items: Sequence[Item]) -> Flushed | None:
        """Settle the whole batch; None when it was cut in two instead, to find the item it cannot take.

        Raises LetGo when the worker stops, or its slice is over, and the handler took longer than the grace.
        """
        crew = self._crew
        await crew.enter(self)
        try:
            await self._turn_comes()
            return await self._run_in_line(items)
        finally:
            crew.leave()

    async def _run_in_line(self, items: Sequence[Item]) -> Flushed | None:
        """When the limiter lets the batch begin, if there is one: one permit for all of it."""
        if self._entrance is not None:
            await self._let_in()
        started = time.monotonic()
        try:
            result = await self._run(items)
        finally:
            if self._entrance is not None:
                self._entrance.line.leave(time.monotonic() - started)
        self._note(started)
        return result

    async def _let_in(self) -> None:
        """LetGo when nobody may begin for long, or when the process is to stop meanwhile."""
        assert self._entrance is not None  # noqa: S101  else nobody comes here
        stop = asyncio.create_task(self._dismissed())
        try:
            wait = await self._entrance.line.enter(self)
        finally:
            stop.cancel()
        if wait is not None:
            raise LetGo

    async def _dismissed(self) -> None:
        await self._context.stopped.wait()
        if self._entrance is not None:
            self._entrance.dismiss(self)

    def _note(self, started: float) -> None:
        """A refusal is the limiter's business, where there is one; else the crew's."""
        said = self._said
        if not isinstance(said, Retry) or not said.throttled or (self._entrance is None and not is_told(said)):
            self._crew.note(said, started, time.monotonic())
        elif self._entrance is not None and not is_told(said):
            self._entrance.line.refused(said.after, started)

    async def _turn_comes(self) -> None:
        """Where starts are held apart, wait for the next one; LetGo when the process is to stop meanwhile."""
        if self._crew.gap_s:
            await self._context.rest(self._crew.book(time.monotonic()))
        if self._context.stopping:
            raise LetGo

    async def _run(self, items: Sequence[Item]) -> Flushed | None:
        self._page.start_whole(len(items))
        try:
            result = await self._settle(items)
            self._crew.note_whole(None)
            return result
        except LetGo:
            raise
        except Abort as abort:
            await self._fail_job(abort.reason)
            raise LetGo from abort
        except Outcome as outcome:
            return await self._settle_as(items, outcome)
        except BaseException as error:  # the border: whatever it is, it is an outcome
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            is_broken = self._crew.note_whole(error)
            if len(items) > 1 and not is_throttle(error) and not is_broken:
                self._said = translate(error, self._handler)
                pieces = cut_halves(self._lease)
                await self._context.db.run(leases.split, self._lease, pieces)
                emit("batch.split", job=self._lease.job_id, batch=self._lease.batch_id, pieces=len(pieces))
                return None
            return await self._settle_as(items, self._outcome_of(error))
        finally:
            self._page.free_whole()

    async def _settle(self, items: Sequence[Item]) -> Flushed:
        good = [item for item in items if item.defect is None]
        if self._handler.in_transaction:
            return await self._settle_in_transaction(items, good)
        started = time.monotonic()
        self._decide(items, await self._ask(good), started)
        return await self._flush()

    async def _settle_in_transaction(self, items: Sequence[Item], good: list[Item]) -> Flushed:
        """Again while the database is in trouble; what the handler's own statements run into is its failure.

        Raises Abort when the server has no room, and gets none for about a minute.
        """
        db, limit = self._context.db, self._handler.timeout or 0.0
        for attempt in itertools.count(1):
            try:
                async with db.transaction(seconds=limit, lock_seconds=LOCKED_S) as conn:
                    result = await self._settle_within(conn, items, good)
                await self._columns.store(db)
                return result
            except Exception as error:
                if not is_transient(error) or is_timeout(error) or (is_contention(error) and attempt >= MAX_CONTENTION):
                    raise
                said = str(error).strip()
                if is_full(error) and attempt >= MAX_FULL:
                    raise Abort(f"the database has no room: {said}") from error
                emit("database.retry", verb=self._handler.kind, attempt=attempt, error=said)
                await asyncio.sleep(min(1.0, 0.02 * 2**attempt))
        raise AssertionError  # count() does not end

    async def _settle_within(self, conn: Connection, items: Sequence[Item], good: list[Item]) -> Flushed:
        """Fence, then the handler's effects, then outcomes: they commit together or not at all."""
        if not await store.hold(conn, self._lease):
            return await store.why_refused(conn, self._lease)
        started = time.monotonic()
        self._decide(items, await self._ask(good, conn), started)
        await self._columns.try_to_store(self._context.db)
        return await store.flush(conn, *self._to_flush())

    async def _fail_job(self, reason: str) -> None:
        job_id = self._lease.job_id
        if await self._context.db.run(jobs.fail, job_id, reason):
            emit("job.failed", job=job_id, reason=reason)

    async def _settle_as(self, items: Sequence[Item], outcome: Outcome) -> Flushed:
        self._decide(items, all_of(outcome, sum(item.defect is None for item in items)), time.monotonic())
        return await self._flush()

    def _outcome_of(self, error: BaseException) -> Outcome:
        """What one item, alone, has run into."""
        if self._returned and is_refused_data(error):
            return Fail("PostgreSQL cannot store what the handler returned", code="invalid_result")
        if isinstance(error, TimeoutError) or is_timeout(error):
            return timed_out(self._handler.timeout or 0)
        return translate(error, self._handler)

    async def _flush(self) -> Flushed:
        await self._columns.store(self._context.db)
        return await self._context.db.run(store.flush, *self._to_flush())

    def _to_flush(self) -> tuple[Lease, Sequence[Verdict], float, int]:
        seconds = self._context.lease_seconds(self._lease.kind, self._lease.open)
        return self._lease, self.decided.verdicts, seconds, self.decided.plain

    def _decide(self, items: Sequence[Item], said: Exceptions, started: float) -> None:
        self.decided = self._decider.decide(items, said, time.monotonic() - started, self._crew.spacing)
        self._said = self.decided.said

    async def _ask(self, good: list[Item], conn: Connection | None = None) -> Exceptions:
        if not good:
            return Exceptions()
        started = time.monotonic()
        try:
            values = await self._call(good, conn)
        except Done as done:  # any other outcome undoes the handler's effects on its way out
            return all_of(done, len(good))
        finally:
            self.seconds = time.monotonic() - started
        self._returned = True
        self._page.answered()
        return hear(values, len(good))

    async def _call(self, good: list[Item], conn: Connection | None) -> Any:
        if not inspect.iscoroutinefunction(self._handler.call):  # a thread cannot be cancelled: the parent sees to it
            return await asyncio.get_running_loop().run_in_executor(
                self._context.threads(self._handler), self._guarded, good
            )
        call = self._handler.call(good) if conn is None else self._handler.call(good, conn)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we run in one
        watch = asyncio.create_task(self._watch(task))
        try:
            async with asyncio.timeout(self._handler.timeout):
                return await call
        except BaseException:
            if self._let_go and task.cancelling() == 1:  # else the lease was lost in the same moment
                raise LetGo from None
            raise
        finally:
            watch.cancel()
            if self._let_go:
                task.uncancel()

    async def _watch(self, task: "asyncio.Task[Any]") -> None:
        while not self._context.out_of_grace:  # noqa: ASYNC110  a moment that is not known yet, and no event
            await asyncio.sleep(WATCH_S)
        self._let_go = True
        task.cancel()

    def _guarded(self, good: list[Item]) -> Any:
        """In the thread, out of which a StopIteration cannot be carried."""
        try:
            return self._handler.call(good)
        except StopIteration as error:
            raise RuntimeError(describe(error)) from error


def _is_cancelled() -> bool:
    """Whether somebody cancels this very task, rather than the handler raising it by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
