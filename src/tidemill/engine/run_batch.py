"""From what a set-based handler said of a whole batch to verdicts.

Running a whole batch through a set-based handler: one transaction, or nothing.
"""

import asyncio
import inspect
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidemill.core.batch import Lease, split_in_half
from tidemill.core.decide import Verdict, describe_exception, make_timeout_retry, outcome_from_defect
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import AbortJob, BatchExceptions, Done, Fail, Outcome, Retry, Wait
from tidemill.core.throttling import is_throttling_error
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.learned_columns import LearnedColumns
from tidemill.engine.verdicts import make_failed_verdicts, make_verdict, outcome_from_error, to_outcome
from tidemill.limits.admission import is_throttle_reported
from tidemill.store import batch_leases, job_lifecycle
from tidemill.store import outcome_flush as store
from tidemill.store.database import (
    Connection,
    is_contention,
    is_out_of_resources,
    is_timeout,
    is_transient,
    is_unstorable_value,
)
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import emit

_DONE = Done()


def parse_batch_result(values: Any, count: int) -> BatchExceptions:
    """What a handler gave back for so many items. Raises the one outcome of all, unless they are done."""
    if values is None:
        return BatchExceptions()
    if isinstance(values, BatchExceptions):
        return values
    if isinstance(values, Done):
        return repeat_outcome(values, count)
    if isinstance(values, Outcome):
        raise values
    if not isinstance(values, list | tuple) or len(values) != count:
        return repeat_outcome(Fail(_describe_wrong_shape(values, count), code="invalid_result"), count)
    return BatchExceptions(dict(enumerate(map(to_outcome, values))))


def repeat_outcome(outcome: Outcome, count: int) -> BatchExceptions:
    return BatchExceptions(dict.fromkeys(range(count), outcome))


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """What becomes of a batch. ``plain`` more of its items are done and leave no trace; ``said`` is of all together."""

    verdicts: Sequence[Verdict] = ()
    sparse_done: int = 0
    batch_outcome: Outcome = _DONE  # a refusal if there was one


class BatchDecider:
    """Decides of the items of one batch."""

    def __init__(self, lease: Lease, handler: Handler, columns: LearnedColumns) -> None:
        self._handler = handler
        self._learned_columns = columns
        self._records_done_items = not lease.sparse or lease.is_list

    def decide(self, items: Sequence[Item], outcomes: BatchExceptions, seconds: float, spacing: float) -> BatchDecision:
        """``said`` is of those items that have no defect, which are all that a handler gets to see."""
        good = [item for item in items if item.defect is None]
        each_ms = round(seconds * 1000 / max(len(items), 1))
        failed = make_failed_verdicts(
            [good[place] for place in outcomes.failed], list(outcomes.failed.values()), each_ms
        )
        others = [
            make_verdict(item, outcome, self._handler, each_ms, self._learned_columns, spacing)
            for item, outcome in self._iter_other_outcomes(items, good, outcomes)
        ]
        plain = 0 if self._records_done_items else len(good) - len(outcomes) - len(outcomes.failed)
        retries = [one for one in outcomes.values() if isinstance(one, Retry) and not isinstance(one, Wait)]
        refused = max(retries, key=lambda retry: bool(retry.throttled), default=_DONE)
        return BatchDecision(failed + others, plain, refused)

    def _iter_other_outcomes(
        self, items: Sequence[Item], good: list[Item], said: BatchExceptions
    ) -> Iterator[tuple[Item, Outcome]]:
        for place, outcome in said.items():
            yield good[place], outcome
        if self._records_done_items:
            for place, item in enumerate(good):
                if place not in said and place not in said.failed:
                    yield item, _DONE
        if len(good) < len(items):
            for item in items:
                if item.defect is not None:
                    yield item, outcome_from_defect(item.defect)


def _describe_wrong_shape(values: object, expected: int) -> str:
    got = f"{len(values)} outcomes" if isinstance(values, list | tuple) else f"a {type(values).__name__}"
    return f"the batch handler returned {got} for {expected} items; it must return None or a list of as many"


GRACE_POLL_S = 0.1
MAX_CONTENTION_ATTEMPTS = 5  # tries at a transaction that others stand in the way of
BATCH_LOCK_TIMEOUT_S = 10.0  # that it waits for one of them
MAX_DISK_FULL_ATTEMPTS = 60  # tries, about a second apart, at a server whose disk is full


class BatchInterrupted(Exception):
    """The grace is over: the batch goes back as it was."""


class BatchExecutor:
    """The items of one batch through a handler that takes them all at once."""

    def __init__(self, context: EngineContext, lease: Lease, handler: Handler, page: LaneState) -> None:
        self._context = context
        self._lease = lease
        self._handler = handler
        self._lane_state = page
        self._semaphore = context.get_semaphore(handler)
        self._admission = context.limiter_registry.make_admission(handler)
        self._batch_outcome: Outcome = Done()  # of the batch as a whole: a refusal if there was one
        self.decision = BatchDecision()
        self.handler_seconds = 0.0  # in the handler, or until it was let go of
        self._has_handler_returned = False
        self._is_grace_over = False
        self._learned_columns = context.learned_columns.get_for_lease(lease)
        self._decider = BatchDecider(lease, handler, self._learned_columns)

    async def run(self, items: Sequence[Item]) -> FlushResult | None:
        """Settle the whole batch; None when it was cut in two instead, to find the item it cannot take.

        Raises LetGo when the worker stops, or its slice is over, and the handler took longer than the grace.
        """
        crew = self._semaphore
        await crew.acquire(self)
        try:
            await self._wait_for_start()
            return await self._run_with_permit(items)
        finally:
            crew.release()

    async def _run_with_permit(self, items: Sequence[Item]) -> FlushResult | None:
        """When the limiter lets the batch begin, if there is one: one permit for all of it."""
        if self._admission is not None:
            await self._acquire_permit()
        started = time.monotonic()
        try:
            result = await self._run_handler(items)
        finally:
            if self._admission is not None:
                self._admission.queue.release(time.monotonic() - started)
        self._record_batch_outcome(started)
        return result

    async def _acquire_permit(self) -> None:
        """LetGo when nobody may begin for long, or when the process is to stop meanwhile."""
        assert self._admission is not None  # noqa: S101  else nobody comes here
        stop = asyncio.create_task(self._cancel_permit_on_stop())
        try:
            wait = await self._admission.queue.acquire(self)
        finally:
            stop.cancel()
        if wait is not None:
            raise BatchInterrupted

    async def _cancel_permit_on_stop(self) -> None:
        await self._context.stop_requested.wait()
        if self._admission is not None:
            self._admission.cancel_waiters(self)

    def _record_batch_outcome(self, started: float) -> None:
        """A refusal is the limiter's business, where there is one; else the crew's."""
        said = self._batch_outcome
        if (
            not isinstance(said, Retry)
            or not said.throttled
            or (self._admission is None and not is_throttle_reported(said))
        ):
            self._semaphore.record_outcome(said, started, time.monotonic())
        elif self._admission is not None and not is_throttle_reported(said):
            self._admission.queue.report_throttled(said.after, started)

    async def _wait_for_start(self) -> None:
        """Where starts are held apart, wait for the next one; LetGo when the process is to stop meanwhile."""
        if self._semaphore.start_gap_s:
            await self._context.sleep_until_stop(self._semaphore.reserve_start(time.monotonic()))
        if self._context.is_stopping:
            raise BatchInterrupted

    async def _run_handler(self, items: Sequence[Item]) -> FlushResult | None:
        self._lane_state.start_batch(len(items))
        try:
            result = await self._settle_items(items)
            self._semaphore.record_batch_error(None)
            return result
        except BatchInterrupted:
            raise
        except AbortJob as abort:
            await self._fail_job(abort.reason)
            raise BatchInterrupted from abort
        except Outcome as outcome:
            return await self._settle_all_as(items, outcome)
        except BaseException as error:  # the border: whatever it is, it is an outcome
            if isinstance(error, asyncio.CancelledError) and _is_task_cancelled():
                raise
            is_broken = self._semaphore.record_batch_error(error)
            if len(items) > 1 and not is_throttling_error(error) and not is_broken:
                self._batch_outcome = outcome_from_error(error, self._handler)
                pieces = split_in_half(self._lease)
                await self._context.db.run(batch_leases.split_batch, self._lease, pieces)
                emit("batch.split", job=self._lease.job_id, batch=self._lease.batch_id, pieces=len(pieces))
                return None
            return await self._settle_all_as(items, self._outcome_from_error(error))
        finally:
            self._lane_state.end_batch()

    async def _settle_items(self, items: Sequence[Item]) -> FlushResult:
        good = [item for item in items if item.defect is None]
        if self._handler.in_transaction:
            return await self._settle_in_transaction(items, good)
        started = time.monotonic()
        self._decide_outcomes(items, await self._collect_outcomes(good), started)
        return await self._flush_decision()

    async def _settle_in_transaction(self, items: Sequence[Item], good: list[Item]) -> FlushResult:
        """Again while the database is in trouble; what the handler's own statements run into is its failure.

        Raises Abort when the server has no room, and gets none for about a minute.
        """
        db, limit = self._context.db, self._handler.timeout or 0.0
        for attempt in itertools.count(1):
            try:
                async with db.transaction(statement_timeout_s=limit, lock_timeout_s=BATCH_LOCK_TIMEOUT_S) as conn:
                    result = await self._settle_on_connection(conn, items, good)
                await self._learned_columns.store_new_columns(db)
                return result
            except Exception as error:
                if (
                    not is_transient(error)
                    or is_timeout(error)
                    or (is_contention(error) and attempt >= MAX_CONTENTION_ATTEMPTS)
                ):
                    raise
                said = str(error).strip()
                if is_out_of_resources(error) and attempt >= MAX_DISK_FULL_ATTEMPTS:
                    raise AbortJob(f"the database has no room: {said}") from error
                emit("database.retry", verb=self._handler.kind, attempt=attempt, error=said)
                await asyncio.sleep(min(1.0, 0.02 * 2**attempt))
        raise AssertionError  # count() does not end

    async def _settle_on_connection(self, conn: Connection, items: Sequence[Item], good: list[Item]) -> FlushResult:
        """Fence, then the handler's effects, then outcomes: they commit together or not at all."""
        if not await store.lock_leased_batch(conn, self._lease):
            return await store.explain_rejected_flush(conn, self._lease)
        started = time.monotonic()
        self._decide_outcomes(items, await self._collect_outcomes(good, conn), started)
        await self._learned_columns.try_store_new_columns(self._context.db)
        return await store.flush_outcomes(conn, *self._build_flush_arguments(), after_flush=self._handler.after_flush)

    async def _fail_job(self, reason: str) -> None:
        job_id = self._lease.job_id
        if await self._context.db.run(job_lifecycle.fail_job, job_id, reason):
            emit("job.failed", job=job_id, reason=reason)

    async def _settle_all_as(self, items: Sequence[Item], outcome: Outcome) -> FlushResult:
        self._decide_outcomes(
            items, repeat_outcome(outcome, sum(item.defect is None for item in items)), time.monotonic()
        )
        return await self._flush_decision()

    def _outcome_from_error(self, error: BaseException) -> Outcome:
        """What one item, alone, has run into."""
        if self._has_handler_returned and is_unstorable_value(error):
            return Fail("PostgreSQL cannot store what the handler returned", code="invalid_result")
        if isinstance(error, TimeoutError) or is_timeout(error):
            return make_timeout_retry(self._handler.timeout or 0)
        return outcome_from_error(error, self._handler)

    async def _flush_decision(self) -> FlushResult:
        await self._learned_columns.store_new_columns(self._context.db)
        return await self._context.db.run(
            store.flush_outcomes, *self._build_flush_arguments(), after_flush=self._handler.after_flush
        )

    def _build_flush_arguments(self) -> tuple[Lease, Sequence[Verdict], float, int]:
        seconds = self._context.lease_seconds(self._lease.kind, self._lease.open)
        return self._lease, self.decision.verdicts, seconds, self.decision.sparse_done

    def _decide_outcomes(self, items: Sequence[Item], said: BatchExceptions, started: float) -> None:
        self.decision = self._decider.decide(items, said, time.monotonic() - started, self._semaphore.retry_spacing)
        self._batch_outcome = self.decision.batch_outcome

    async def _collect_outcomes(self, good: list[Item], conn: Connection | None = None) -> BatchExceptions:
        if not good:
            return BatchExceptions()
        started = time.monotonic()
        try:
            values = await self._call_handler(good, conn)
        except Done as done:  # any other outcome undoes the handler's effects on its way out
            return repeat_outcome(done, len(good))
        finally:
            self.handler_seconds = time.monotonic() - started
        self._has_handler_returned = True
        self._lane_state.mark_batch_answered()
        return parse_batch_result(values, len(good))

    async def _call_handler(self, good: list[Item], conn: Connection | None) -> Any:
        if not inspect.iscoroutinefunction(self._handler.call):  # a thread cannot be cancelled: the parent sees to it
            return await asyncio.get_running_loop().run_in_executor(
                self._context.get_thread_pool(self._handler), self._call_in_thread, good
            )
        call = self._handler.call(good) if conn is None else self._handler.call(good, conn)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  we run in one
        watch = asyncio.create_task(self._cancel_after_grace(task))
        try:
            async with asyncio.timeout(self._handler.timeout):
                return await call
        except BaseException:
            if self._is_grace_over and task.cancelling() == 1:  # else the lease was lost in the same moment
                raise BatchInterrupted from None
            raise
        finally:
            watch.cancel()
            if self._is_grace_over:
                task.uncancel()

    async def _cancel_after_grace(self, task: "asyncio.Task[Any]") -> None:
        while not self._context.is_grace_over:  # noqa: ASYNC110  a moment that is not known yet, and no event
            await asyncio.sleep(GRACE_POLL_S)
        self._is_grace_over = True
        task.cancel()

    def _call_in_thread(self, good: list[Item]) -> Any:
        """In the thread, out of which a StopIteration cannot be carried."""
        try:
            return self._handler.call(good)
        except StopIteration as error:
            raise RuntimeError(describe_exception(error)) from error


def _is_task_cancelled() -> bool:
    """Whether somebody cancels this very task, rather than the handler raising it by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
