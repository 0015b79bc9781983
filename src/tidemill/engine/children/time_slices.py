"""Runs one job for a limited time, in a free child process."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import UUID

from tidemill.core.errors import Busy, QuotaExceeded, Unavailable
from tidemill.core.job import TimeSliceResult
from tidemill.core.kinds import HandlerLookup
from tidemill.engine.children.child_process import SLICE_OVERDUE_S, ChildProcess
from tidemill.engine.children.control_pipe import StartSliceMessage
from tidemill.engine.children.supervisor import DRAIN_GIVE_UP_S, Supervisor
from tidemill.engine.context import EngineContext
from tidemill.engine.ingester import Ingester
from tidemill.engine.lane import Lane, SingleJobClaimer, fail_or_close_job_if_due
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.source_fetcher import SourceFetcher
from tidemill.runtime import FindKindHooks
from tidemill.store.database import Database
from tidemill.store.job_events import bind_job_fields
from tidemill.store.progress_samples import RemainingWork, read_remaining_work
from tidemill.telemetry.events import emit

MAX_SLICE_GRACE_S = 2.0
IDLE_LOOP_RECHECK_S = 0.1  # how often an idle loop checks for work while another loop of the slice works


def compute_slice_grace_s(stop_grace_ms: int) -> float:
    """Return how long running items may take after a slice ended; it is short because a client waits."""
    return min(stop_grace_ms / 1000, MAX_SLICE_GRACE_S)


class TimeSliceWork:
    """Runs time slices one after another. Between slices it does not query the database."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._grace_s = compute_slice_grace_s(context.settings.stop_grace_ms)
        self._claimer = SingleJobClaimer(context)
        *pages, last = context.shared_state.lanes
        self._ingester = Ingester(context, last)
        self._fetcher = SourceFetcher(context)
        lanes = (Lane(context, self._claimer, page) for page in pages)
        self.loops: list[PeriodicLoop] = [*lanes, self._ingester, self._fetcher]
        self._idle_loops: set[PeriodicLoop] = set()
        self._has_new_work = False
        self._slice_queue: asyncio.Queue[StartSliceMessage | None] = asyncio.Queue()
        self._last_ended_slice = 0  # slices up to this number have ended, or are skipped when they are dequeued

    async def run(self) -> None:
        """Run until stopped, or until a handler's thread was abandoned, which ends only with the process."""
        shared_state = self._context.shared_state
        shared_state.set_accepts_slices(True)
        while (message := await self._slice_queue.get()) is not None:
            if message.number > self._last_ended_slice:
                await self._run_slice(message)
            shared_state.set_accepts_slices(not self._context.has_abandoned_thread)
            shared_state.mark_slice_ended(message.number)
            if self._context.has_abandoned_thread:
                return

    def enqueue_slice(self, message: StartSliceMessage) -> None:
        self._slice_queue.put_nowait(message)

    def end_slice_with_grace(self, number: int) -> None:
        """Start no further item; running items have the grace period."""
        if number > self._last_ended_slice:
            self._last_ended_slice = number
            self._context.request_stop(self._grace_s)
            self.wake()

    def wake(self) -> None:
        for loop in self.loops:
            loop.wake()

    def request_stop(self) -> None:
        """Stop the child; a running slice has the child's grace period."""
        self._last_ended_slice = max(self._last_ended_slice, 1 << 62)
        self.wake()
        self._slice_queue.put_nowait(None)

    async def _run_slice(self, message: StartSliceMessage) -> None:
        self._claimer.set_job_to_claim_from(message.job_id, message.kind)
        self._ingester.only_job_id = self._fetcher.only_job_id = message.job_id
        self._idle_loops.clear()
        seconds = message.milliseconds / 1000
        self._context.reset_for_slice(seconds)
        timer = asyncio.get_running_loop().call_later(seconds, self.end_slice_with_grace, message.number)
        async with asyncio.TaskGroup() as group:
            for loop in self.loops:
                group.create_task(self._run_loop_until_slice_ends(loop, message.number))
        timer.cancel()

    async def _run_loop_until_slice_ends(self, loop: PeriodicLoop, number: int) -> None:
        """Run a loop until the slice ends: on request, or when all loops are idle."""
        while not self._context.is_stopping:
            delay = await loop.tick_safely()
            if not delay:
                self._idle_loops.clear()
                self._has_new_work = True
                continue
            self._idle_loops.add(loop)
            if len(self._idle_loops) == len(self.loops):
                self.end_slice_with_grace(number)
            elif not self._context.is_stopping:
                self._wake_other_loops_after_new_work(loop)
                await loop.sleep_until_woken(min(delay, IDLE_LOOP_RECHECK_S))
                self._idle_loops.discard(loop)

    def _wake_other_loops_after_new_work(self, loop: PeriodicLoop) -> None:
        """Wake the other loops once after new work, because they may find work now."""
        if self._has_new_work:
            self._has_new_work = False
            for other in self.loops:
                if other is not loop:
                    other.wake()


FREE_CHILD_TIMEOUT_S = 2.0
SHARED_CHILD_TIMEOUT_S = 10.0  # while slices of other users run or wait
FAIR_SLICE_S = 1.0  # a slice that has run for longer ends if a user with fewer slices waits
SLICES_PER_USER_MAX = 4  # running and waiting
CHILD_START_TIMEOUT_S = 15.0  # while a child is starting or restarting
SLICE_POLL_S = 0.02
SLICE_SUMMARY_TIMEOUT_S = 5.0


@dataclass(eq=False, slots=True)
class _SliceTicket:
    """A slice that waits for a child, or runs in one."""

    user_id: int
    child: ChildProcess | None = None
    started: float = 0.0
    is_ending: bool = False


class SliceQueue:
    """The waiting and running slices of one supervisor. Users take turns; their number of slices is limited."""

    def __init__(self) -> None:
        self._tickets: list[_SliceTicket] = []  # in the order of arrival

    @contextmanager
    def enter(self, user_id: int) -> Iterator[_SliceTicket]:
        """Add a slice of this user; raise QuotaExceeded if the user has too many slices."""
        own = sum(ticket.user_id == user_id for ticket in self._tickets)
        if own >= SLICES_PER_USER_MAX:
            raise QuotaExceeded("time_slices", own + 1, SLICES_PER_USER_MAX, "Wait until one of your slices ends.")
        ticket = _SliceTicket(user_id)
        self._tickets.append(ticket)
        try:
            yield ticket
        finally:
            self._tickets.remove(ticket)

    def is_next(self, ticket: _SliceTicket) -> bool:
        """Return whether the slice is the next to start: of the user with the fewest running slices."""
        waiting = [one for one in self._tickets if one.child is None]
        return ticket is min(waiting, key=lambda one: self._count_running(one.user_id))

    def has_other_users(self, ticket: _SliceTicket) -> bool:
        return any(one.user_id != ticket.user_id for one in self._tickets)

    def end_longest_slice(self, ticket: _SliceTicket, grace_s: float) -> None:
        """End the longest slice of a user with more running slices, if it has run for ``FAIR_SLICE_S``.

        At most one slice ends for each waiting one.
        """
        own, now = self._count_running(ticket.user_id), time.monotonic()
        for one in sorted(self._tickets, key=lambda one: one.started):
            if one.child is None or one.user_id == ticket.user_id or self._count_running(one.user_id) <= own:
                continue
            if one.is_ending:
                return
            if now - one.started >= FAIR_SLICE_S:
                one.is_ending = True
                one.child.request_slice_end(grace_s)
                return

    def _count_running(self, user_id: int) -> int:
        return sum(one.user_id == user_id and one.child is not None for one in self._tickets)


class SliceRunner:
    """Runs time slices in the children of one supervisor."""

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
        self._queue = SliceQueue()

    async def run_slice(self, job_id: UUID, kind: str, seconds: float, *, user_id: int) -> TimeSliceResult:
        """Run one slice. If the caller is cancelled, the slice ends and its unfinished items are released.

        A slice may end early if other users wait for a child.

        Raises:
            UnknownKind: No handler is registered for the kind.
            QuotaExceeded: The user has too many slices.
            Busy: No child is free.
            Unavailable: The database does not respond.
        """
        self._handlers.get(kind)
        with self._queue.enter(user_id) as ticket:
            child = await self._start_slice_in_free_child(ticket, job_id, kind, seconds)
            started = time.monotonic()
            try:
                deadline = started + seconds + self._grace_s + SLICE_OVERDUE_S + DRAIN_GIVE_UP_S
                await self._wait_until_slice_over(child, deadline)
            finally:
                child.request_slice_end(self._grace_s)
        did, elapsed, died = child.read_slice_counters(), time.monotonic() - started, not child.is_slice_over
        async with bind_job_fields(self._db, job_id):
            emit(
                "slice.ended",
                job=job_id,
                child=child.number,
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

    async def _start_slice_in_free_child(
        self, ticket: _SliceTicket, job_id: UUID, kind: str, seconds: float
    ) -> ChildProcess:
        """Start the slice in the first free child that accepts it; a child may have died since the last check."""
        supervisor, waiting_since = self._supervisor, time.monotonic()
        while True:
            if self._queue.is_next(ticket):
                child = supervisor.find_free_child()
                if child is not None and child.request_slice(job_id, kind, seconds, self._grace_s):
                    ticket.child, ticket.started = child, time.monotonic()
                    return child
                if child is None:
                    self._queue.end_longest_slice(ticket, self._grace_s)
            if supervisor.failure is not None:
                raise supervisor.failure
            if time.monotonic() - waiting_since > self._get_wait_timeout_s(ticket):
                raise Busy("All child processes are busy. Retry in a few seconds.")
            await asyncio.sleep(SLICE_POLL_S)

    def _get_wait_timeout_s(self, ticket: _SliceTicket) -> float:
        if self._supervisor.has_starting_child:
            return CHILD_START_TIMEOUT_S
        return SHARED_CHILD_TIMEOUT_S if self._queue.has_other_users(ticket) else FREE_CHILD_TIMEOUT_S

    async def _wait_until_slice_over(self, child: ChildProcess, deadline: float) -> None:
        """Wait until the child reports the end of the slice, or is dead and cleaned up."""
        while not child.is_slice_over and self._supervisor.has_child(child) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(SLICE_POLL_S)  # shared memory has no event to wait for

    async def _finalize_and_read_remaining_work(self, job_id: UUID) -> RemainingWork:
        try:
            async with asyncio.timeout(SLICE_SUMMARY_TIMEOUT_S):
                # A job without items has no batch after which a lane would close it.
                await fail_or_close_job_if_due(self._db, job_id, self._find_kind_hooks, failed=0)
                return await self._db.read(read_remaining_work, job_id)
        except TimeoutError as error:
            raise Unavailable("The database does not respond") from error
