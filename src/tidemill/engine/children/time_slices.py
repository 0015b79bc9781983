"""Runs one job for the length of a request: a slice in a free child process."""

import asyncio
import time
from uuid import UUID

from tidemill.core.errors import Busy, Unavailable
from tidemill.core.job import TimeSliceResult
from tidemill.core.kinds import HandlerLookup
from tidemill.engine.children.child_process import SLICE_OVERDUE_S, ChildProcess
from tidemill.engine.children.control_pipe import StartSliceMessage
from tidemill.engine.children.supervisor import DRAIN_GIVE_UP_S, Supervisor
from tidemill.engine.claimer import SingleJobClaimer
from tidemill.engine.context import EngineContext
from tidemill.engine.ingester import Ingester
from tidemill.engine.lane import Lane, fail_or_close_job
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.runtime import FindKindHooks
from tidemill.store.database import Database
from tidemill.store.job_events import bind_job_fields
from tidemill.store.progress_samples import RemainingWork, read_remaining_work
from tidemill.telemetry.events import emit

MAX_SLICE_GRACE_S = 2.0
IDLE_LOOP_RECHECK_S = 0.1  # how often a loop looks again while another one of the slice still works


def compute_slice_grace_s(stop_grace_ms: int) -> float:
    """How long items in hand may take when a slice is over: somebody waits for it, so not for long."""
    return min(stop_grace_ms / 1000, MAX_SLICE_GRACE_S)


class TimeSliceWork:
    """Takes slices one after the other. Between two of them nothing is asked of the database."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._grace_s = compute_slice_grace_s(context.settings.stop_grace_ms)
        self._claimer = SingleJobClaimer(context)
        *pages, last = context.shared_state.lanes
        self._ingester = Ingester(context, last)
        self._loops: list[PeriodicLoop] = [*(Lane(context, self._claimer, page) for page in pages), self._ingester]
        self._idle_loops: set[PeriodicLoop] = set()
        self._has_new_work = False
        self._slice_queue: asyncio.Queue[StartSliceMessage | None] = asyncio.Queue()
        self._last_ended_slice = 0  # every slice up to this number is over, or will be when its turn comes

    async def run(self) -> None:
        """Until stopped, or until a handler's thread is left behind, which only the end of the process ends."""
        book = self._context.shared_state
        book.set_ready(True)
        while (order := await self._slice_queue.get()) is not None:
            if order.number > self._last_ended_slice:
                await self._run_slice(order)
            book.set_ready(not self._context.has_abandoned_thread)
            book.mark_slice_ended(order.number)
            if self._context.has_abandoned_thread:
                return

    def enqueue_slice(self, order: StartSliceMessage) -> None:
        self._slice_queue.put_nowait(order)

    def end_slice(self, number: int) -> None:
        """No further item is begun; those in hand have a moment."""
        if number > self._last_ended_slice:
            self._last_ended_slice = number
            self._context.request_stop(self._grace_s)
            self.wake()

    def wake(self) -> None:
        for loop in self._loops:
            loop.wake()

    def stop(self) -> None:
        """The whole child stops: a slice under way has the child's grace."""
        self._last_ended_slice = max(self._last_ended_slice, 1 << 62)
        self.wake()
        self._slice_queue.put_nowait(None)

    async def _run_slice(self, order: StartSliceMessage) -> None:
        self._claimer.select_job(order.job_id, order.kind)
        self._ingester.only_job_id = order.job_id
        self._idle_loops.clear()
        seconds = order.milliseconds / 1000
        self._context.reset_for_slice(seconds)
        timer = asyncio.get_running_loop().call_later(seconds, self.end_slice, order.number)
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(self._run_loop_until_slice_ends(loop, order.number))
        timer.cancel()

    async def _run_loop_until_slice_ends(self, loop: PeriodicLoop, number: int) -> None:
        """Over when no loop has found anything since one last did."""
        while not self._context.is_stopping:
            delay = await loop.tick_safely()
            if not delay:
                self._idle_loops.clear()
                self._has_new_work = True
                continue
            self._idle_loops.add(loop)
            if len(self._idle_loops) == len(self._loops):
                self.end_slice(number)
            elif not self._context.is_stopping:
                self._wake_other_loops(loop)
                await loop.sleep_until_woken(min(delay, IDLE_LOOP_RECHECK_S))
                self._idle_loops.discard(loop)

    def _wake_other_loops(self, loop: PeriodicLoop) -> None:
        """At once, and once: who found nothing before this loop's last work may find something now."""
        if self._has_new_work:
            self._has_new_work = False
            for other in self._loops:
                if other is not loop:
                    other.wake()


FREE_CHILD_TIMEOUT_S = 2.0
CHILD_START_TIMEOUT_S = 15.0  # a child that starts, or is started again, is worth waiting for
SLICE_POLL_S = 0.02
SLICE_SUMMARY_TIMEOUT_S = 5.0


class SliceRunner:
    """Slices in the children of one supervisor."""

    def __init__(
        self,
        db: Database,
        handlers: HandlerLookup,
        supervisor: Supervisor,
        *,
        find_kind_hooks: FindKindHooks,
        grace: float,
    ) -> None:
        self._db = db
        self._handlers = handlers
        self._find_kind_hooks = find_kind_hooks
        self._supervisor = supervisor
        self._grace_s = grace

    async def run_slice(self, job_id: UUID, kind: str, seconds: float) -> TimeSliceResult:
        """One slice. Whoever is cancelled while waiting ends it at once: what is not finished goes back."""
        self._handlers.get(kind)
        hand = await self._start_slice_in_free_child(job_id, kind, seconds)
        started = time.monotonic()
        try:
            await self._wait_until_over(hand, started + seconds + self._grace_s + SLICE_OVERDUE_S + DRAIN_GIVE_UP_S)
        finally:
            hand.request_slice_end(self._grace_s)
        did, elapsed, died = hand.count_slice_work(), time.monotonic() - started, not hand.is_slice_over
        async with bind_job_fields(self._db, job_id):
            emit(
                "slice.ended",
                job=job_id,
                child=hand.number,
                settled=did["settled"],
                failed=did["failed"],
                retried=did["retried"],
                ms=round(elapsed * 1000),
                died=died,
            )
        left = await self._finalize_and_read_remaining_work(job_id)
        return TimeSliceResult(
            settled=did["settled"],
            failed=did["failed"],
            retried=did["retried"],
            seconds=elapsed,
            is_drained=not left.is_open,
            next_due_at=left.next_due_at,
            due_in=left.due_in,
            child_died=died,
        )

    async def _start_slice_in_free_child(self, job_id: UUID, kind: str, seconds: float) -> ChildProcess:
        """The first child that is free and takes it; one may have died since its parent last looked."""
        supervisor, waiting_since = self._supervisor, time.monotonic()
        while True:
            hand = supervisor.find_free_child()
            if hand is not None and hand.request_slice(job_id, kind, seconds, self._grace_s):
                return hand
            if supervisor.failure is not None:
                raise supervisor.failure
            if time.monotonic() - waiting_since > (
                CHILD_START_TIMEOUT_S if supervisor.is_starting else FREE_CHILD_TIMEOUT_S
            ):
                raise Busy("every child process is busy; try again soon")
            await asyncio.sleep(SLICE_POLL_S)

    async def _wait_until_over(self, hand: ChildProcess, deadline: float) -> None:
        """Until the child says so, or is dead and buried; its parent sees to it that one of the two happens."""
        while not hand.is_slice_over and self._supervisor.has_child(hand) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(SLICE_POLL_S)  # the logbook is memory of another process: it has no event to wait for

    async def _finalize_and_read_remaining_work(self, job_id: UUID) -> RemainingWork:
        try:
            async with asyncio.timeout(SLICE_SUMMARY_TIMEOUT_S):
                # A source without records has no batch after which a lane would close the job.
                await fail_or_close_job(self._db, job_id, self._find_kind_hooks, failed=0)
                return await self._db.read(read_remaining_work, job_id)
        except TimeoutError as error:
            raise Unavailable("the database does not answer") from error
