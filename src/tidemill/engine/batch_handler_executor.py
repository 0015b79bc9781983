"""Runs a whole batch through a set-based handler and writes its outcomes in one transaction."""

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from tidemill.core.batch import Lease, split_evenly
from tidemill.core.decide import (
    describe_exception,
    make_connection_loss_failure,
    make_statement_timeout_retry,
    make_timeout_retry,
)
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import AbortJob, BatchExceptions, Done, Fail, Outcome, Retry
from tidemill.core.throttling import is_throttling_error
from tidemill.engine.admission import Admission, CallPermit
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.learned_columns import LearnedColumns
from tidemill.engine.verdicts import (
    BatchDecision,
    add_exception_of_cause,
    outcome_from_error,
    parse_batch_result,
    repeat_outcome_for_items,
)
from tidemill.failpoints import failpoint
from tidemill.limits.limiter_permit import ThrottleReports
from tidemill.store import batch_leases, job_lifecycle
from tidemill.store import outcome_flush as store
from tidemill.store.connection_losses import ConnectionLossDetector, describe_loss
from tidemill.store.database import (
    Connection,
    describe_error,
    is_contention_error,
    is_out_of_resources_error,
    is_timeout_error,
    is_transient,
    is_unstorable_value_error,
)
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import emit

GRACE_POLL_S = 0.1
MAX_CONTENTION_ATTEMPTS = 5  # attempts at a transaction that conflicts with locks of other transactions
BATCH_LOCK_TIMEOUT_S = 10.0
MAX_TRANSIENT_ATTEMPTS = 60  # attempts, about one second apart, while the server is away or its disk is full
MAX_CONNECTION_LOSSES = 3  # of a batch before it is split, and of an item that is alone before it fails
CONNECTION_LOSS_BACKOFF_S, CONNECTION_LOSS_BACKOFF_MAX_S = 0.5, 30.0
SLOW_SPLIT_PARTS = 16  # after a timeout or a lost connection: 10,000 rows are narrowed down to one in 4 steps, not 14
STOPPED_JOB_GRACE_S = 0.5  # for a transaction of a job that was paused, cancelled or deleted; then it is cancelled

DecideBatch = Callable[[BatchExceptions, float], BatchDecision]  # outcomes, seconds in the handler


class BatchInterrupted(Exception):
    """The batch did not run to its end; it is released unchanged."""


class _ConnectionLost(Exception):
    """The transaction of the batch made the server end its connection."""


class BatchHandlerExecutor:
    """Runs one batch through a handler that takes all items at once."""

    def __init__(
        self,
        context: EngineContext,
        lease: Lease,
        handler: Handler,
        lane_state: LaneState,
        admission: Admission,
        columns: LearnedColumns,
        decide: DecideBatch,
    ) -> None:
        self._context = context
        self._lease = lease
        self._handler = handler
        self._lane_state = lane_state
        self._admission = admission
        self._columns = columns
        self._decide = decide
        self._reports = ThrottleReports()
        self._batch_outcome: Outcome = Done()  # for the whole batch: a throttled retry if there was one
        self.decision = BatchDecision()
        self.handler_seconds = 0.0  # time in the handler, also if it was cancelled
        self.has_handler_returned = False
        self._is_interrupted = False

    async def run(self, items: Sequence[Item]) -> FlushResult | None:
        """Settle the whole batch; return None if it was split to find the item that the handler cannot process.

        Raises:
            BatchInterrupted: The process must stop, or the batch may not start for a longer time.
        """
        admission = self._admission
        async with admission.admit_calls():
            if not await admission.acquire_slot():
                raise BatchInterrupted
            try:
                if not await admission.wait_for_start():
                    raise BatchInterrupted
                permit = await admission.acquire_call_permit()
                if not isinstance(permit, CallPermit):
                    raise BatchInterrupted
                try:
                    result = await self._run_handler_or_split(items)
                finally:
                    permit.release()
                self._report_outcome(permit)
                return result
            finally:
                admission.semaphore.release(admission.owner_id)

    def _report_outcome(self, permit: CallPermit) -> None:
        """Report the outcome of the batch to the concurrency controller, if it says something about the load.

        A row that its table rejects is no reason to delay the batches of other jobs.
        """
        outcome = self._batch_outcome
        if not self._handler.in_transaction or not isinstance(outcome, Retry) or outcome.throttled:
            permit.report_outcome(outcome, time.monotonic(), self._reports)

    async def _run_handler_or_split(self, items: Sequence[Item]) -> FlushResult | None:
        self._lane_state.mark_batch_started(len(items))
        self._reports.set_as_current()
        semaphore = self._admission.semaphore
        try:
            result = await self._run_and_flush_items(items)
            semaphore.record_batch_end_and_detect_code_errors(None)
            return result
        except BatchInterrupted:
            raise
        except _ConnectionLost as loss:
            return await self._count_connection_loss(items, str(loss))
        except AbortJob as abort:
            await self._fail_job_and_report(abort.reason)
            raise BatchInterrupted from abort
        except Outcome as outcome:
            add_exception_of_cause(outcome, self._context.tracebacks)
            return await self._flush_same_outcome_for_all(items, outcome)
        except BaseException as error:  # every exception of a handler is an outcome
            if isinstance(error, asyncio.CancelledError) and _is_task_cancelled():
                raise
            is_broken = semaphore.record_batch_end_and_detect_code_errors(error)
            if len(items) > 1 and not is_throttling_error(error) and not is_broken:
                self._batch_outcome = outcome_from_error(error, self._handler, self._reports, self._context.tracebacks)
                await self._split_batch(SLOW_SPLIT_PARTS if is_timeout_error(error) else 2)
                return None
            return await self._flush_same_outcome_for_all(items, self._outcome_from_error(error))
        finally:
            self._lane_state.mark_batch_ended()

    async def _split_batch(self, parts: int, *, disconnects: int = 0, delay_s: float = 0.0) -> bool:
        """Split the batch; return False if its lease was lost."""
        lease, pieces = self._lease, split_evenly(self._lease, parts)
        is_split = await self._context.db.run(
            batch_leases.split_batch, lease, pieces, disconnects=disconnects, delay_s=delay_s
        )
        if is_split:
            emit("batch.split", job=lease.job_id, batch=lease.batch_id, pieces=len(pieces))
        return is_split

    async def _count_connection_loss(self, items: Sequence[Item], reason: str) -> FlushResult | None:
        """Postpone the batch; after MAX_CONNECTION_LOSSES split it, or fail its only item."""
        db, lease, losses = self._context.db, self._lease, self._lease.disconnects + 1
        emit(
            "batch.disconnected", job=lease.job_id, batch=lease.batch_id, items=len(items), losses=losses, error=reason
        )
        delay_s = min(CONNECTION_LOSS_BACKOFF_S * 2.0 ** (losses - 1), CONNECTION_LOSS_BACKOFF_MAX_S)
        if losses < MAX_CONNECTION_LOSSES:
            is_held = await db.run(batch_leases.postpone_batch, lease, disconnects=losses, delay_s=delay_s)
        elif len(items) > 1:
            is_held = await self._split_batch(SLOW_SPLIT_PARTS, disconnects=losses, delay_s=delay_s)
        else:
            for item in items:
                emit("item.poison", job=lease.job_id, seq=item.seq)
            return await self._flush_same_outcome_for_all(items, make_connection_loss_failure(losses, reason))
        # The lease is also gone if the transaction was committed before the connection was lost.
        return None if is_held else await db.run(store.classify_rejected_flush, lease)

    async def _run_and_flush_items(self, items: Sequence[Item]) -> FlushResult:
        good = [item for item in items if item.defect is None]
        if self._handler.in_transaction:
            return await self._run_and_flush_in_transaction(good)
        started = time.monotonic()
        self._decide_and_keep_verdicts(await self._call_handler_for_outcomes(good), started)
        return await self._flush_decision()

    async def _run_and_flush_in_transaction(self, good: list[Item]) -> FlushResult:
        """Run the handler and the flush in one transaction; retry it after transient errors.

        Raises:
            AbortJob: The disk of the database server has been full for about a minute.
            BatchInterrupted: The server was not available for about a minute, or the job was stopped.
        """
        db, limit = self._context.db, self._statement_timeout_s
        for attempt in range(1, MAX_TRANSIENT_ATTEMPTS + 1):
            detector = ConnectionLossDetector()
            try:
                async with (
                    db.transaction(statement_timeout_s=limit, lock_timeout_s=BATCH_LOCK_TIMEOUT_S) as conn,
                    detector.observe_connection(conn),
                ):
                    result = await self._run_and_flush_on_connection(conn, good, detector)
                await self._columns.store_new_columns(db)
                return result
            except (BatchInterrupted, Outcome):
                raise
            except Exception as error:
                if await detector.is_caused_by_transaction(db) and not is_timeout_error(error):
                    raise _ConnectionLost(describe_loss(error)) from error
                if not _may_retry_transaction(error, attempt, detector):
                    raise
                message = describe_error(error)
                if attempt >= MAX_TRANSIENT_ATTEMPTS:
                    if is_out_of_resources_error(error):
                        raise AbortJob(f"The database server is out of disk space: {message}") from error
                    raise BatchInterrupted from error
                emit("database.retry", verb=self._handler.kind, attempt=attempt, error=message)
                await asyncio.sleep(min(1.0, 0.02 * 2**attempt))
            finally:
                detector.close()
        raise AssertionError  # the last attempt returns or raises

    @property
    def _statement_timeout_s(self) -> float:
        return self._handler.statement_timeout or self._handler.timeout or 0.0

    async def _run_and_flush_on_connection(
        self, conn: Connection, good: list[Item], detector: ConnectionLossDetector
    ) -> FlushResult:
        """Check the fence, run the handler, write the outcomes: all in the same transaction."""
        detector.server_started_at = await store.lock_leased_batch(conn, self._lease)
        if detector.server_started_at is None:
            return await store.classify_rejected_flush(conn, self._lease)
        started = time.monotonic()
        self._decide_and_keep_verdicts(await self._call_handler_for_outcomes(good, conn), started)
        await self._columns.store_new_columns_unless_locked(self._context.db)
        return await self._write_decision(conn)

    async def _fail_job_and_report(self, reason: str) -> None:
        job_id = self._lease.job_id
        if await self._context.db.run(job_lifecycle.fail_job, job_id, reason):
            emit("job.failed", job=job_id, reason=reason)

    async def _flush_same_outcome_for_all(self, items: Sequence[Item], outcome: Outcome) -> FlushResult:
        self._decide_and_keep_verdicts(
            repeat_outcome_for_items(outcome, sum(item.defect is None for item in items)), time.monotonic()
        )
        return await self._flush_decision()

    def _outcome_from_error(self, error: BaseException) -> Outcome:
        """Return the outcome of an error for a batch that cannot be split further."""
        if self.has_handler_returned and is_unstorable_value_error(error):
            return Fail("PostgreSQL cannot store the result of the handler", code="invalid_result")
        if isinstance(error, TimeoutError):
            return make_timeout_retry(self._handler.timeout or 0)
        if is_timeout_error(error):
            return make_statement_timeout_retry(self._statement_timeout_s)
        return outcome_from_error(error, self._handler, self._reports, self._context.tracebacks)

    async def _flush_decision(self) -> FlushResult:
        await self._columns.store_new_columns(self._context.db)
        return await self._context.db.run(self._write_decision)

    async def _write_decision(self, conn: Connection) -> FlushResult:
        seconds = self._context.sizing.compute_lease_seconds(self._lease.kind, self._lease.open)
        decision = self.decision
        return await store.flush_outcomes(
            conn,
            self._lease,
            decision.verdicts,
            seconds,
            decision.sparse_done,
            after_flush=self._handler.after_flush,
        )

    def _decide_and_keep_verdicts(self, outcomes: BatchExceptions, started: float) -> None:
        self.decision = self._decide(outcomes, time.monotonic() - started)
        self._batch_outcome = self.decision.batch_outcome

    async def _call_handler_for_outcomes(self, good: list[Item], conn: Connection | None = None) -> BatchExceptions:
        if not good:
            return BatchExceptions()
        started = time.monotonic()
        try:
            values = await self._call_handler(
                good.copy(), conn
            )  # a handler may change its list; a retry needs all items
        except Done as done:  # any other raised outcome rolls the transaction back
            return repeat_outcome_for_items(done, len(good))
        finally:
            self.handler_seconds = time.monotonic() - started
        failpoint("batch.handler_returned")
        self.has_handler_returned = True
        self._lane_state.mark_batch_answered()
        return parse_batch_result(values, len(good))

    async def _call_handler(self, good: list[Item], conn: Connection | None) -> Any:
        if not inspect.iscoroutinefunction(self._handler.call):  # a thread cannot be cancelled: the parent kills it
            return await asyncio.get_running_loop().run_in_executor(
                self._context.get_thread_pool(self._handler), self._call_blocking_handler, good
            )
        # In a task of its own: a handler that cancels its current task must not cancel the lane.
        coroutine = self._handler.call(good) if conn is None else self._handler.call(good, conn)
        call = asyncio.create_task(_return_value_and_exception(coroutine))
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  this coroutine runs in a task
        watch = asyncio.create_task(self._cancel_handler_after_grace(task))
        try:
            async with asyncio.timeout(self._handler.timeout):
                value, error = await call
            if error is not None:
                raise error  # noqa: TRY301  the end of the grace period applies to it, too
            return value
        except BaseException:
            if self._is_interrupted and task.cancelling() == 1:  # more than 1: the lease was lost at the same time
                raise BatchInterrupted from None
            raise
        finally:
            watch.cancel()
            if self._is_interrupted:
                task.uncancel()

    async def _cancel_handler_after_grace(self, task: "asyncio.Task[Any]") -> None:
        """Cancel the handler when the grace period of the process or of a stopped job ends.

        The cancellation reaches the server: the driver cancels the running statement.
        """
        while not (self._context.is_grace_over or self._is_transaction_of_stopped_job_overdue):  # noqa: ASYNC110  it has no event
            await asyncio.sleep(GRACE_POLL_S)
        self._is_interrupted = True
        task.cancel()

    @property
    def _is_transaction_of_stopped_job_overdue(self) -> bool:
        """Whether the job was stopped. A handler without a transaction may have effects elsewhere, so it finishes."""
        stopped_at = self._admission.job_stopped_at
        return (
            self._handler.in_transaction
            and stopped_at is not None
            and time.monotonic() - stopped_at > STOPPED_JOB_GRACE_S
        )

    def _call_blocking_handler(self, good: list[Item]) -> Any:
        """Call the handler in its thread. A future cannot carry StopIteration, so it is converted."""
        self._reports.set_as_current()
        try:
            return self._handler.call(good)
        except StopIteration as error:
            raise RuntimeError(describe_exception(error)) from error


def _may_retry_transaction(error: Exception, attempt: int, detector: ConnectionLossDetector) -> bool:
    """Return whether the same transaction may succeed later, because its rows did not cause the error."""
    if is_timeout_error(error):
        return False  # the server also ends the connection of a transaction that takes too long
    if detector.is_lost:
        return True
    if not is_transient(error):
        return False
    if is_contention_error(error):
        return attempt < MAX_CONTENTION_ATTEMPTS
    # A trigger can raise any SQLSTATE, also that of a lost connection.
    return is_out_of_resources_error(error) or detector.server_started_at is None


async def _return_value_and_exception(call: Coroutine[Any, Any, Any]) -> tuple[Any, BaseException | None]:
    """Return the value and the exception of a call. A task that raises KeyboardInterrupt would end the event loop."""
    try:
        return await call, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  the caller raises it
        return None, error


def _is_task_cancelled() -> bool:
    """Return whether this task is being cancelled; if not, the handler raised CancelledError itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
