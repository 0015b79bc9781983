"""The calls of one process that wait for one limiter or one of its members, and the slots that the process holds."""

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass

from tidemill.core.arithmetic import clamp, update_moving_average
from tidemill.core.decide import describe_exception
from tidemill.limits.limiter import Limiter
from tidemill.limits.limiter_client import (
    MAX_BLOCK_WAIT_S,
    PERMIT_LOOKAHEAD_S,
    LimiterClient,
    PermitCache,
    PermitWindow,
    ThrottleReporter,
)
from tidemill.limits.limiter_records import PermitGrant
from tidemill.telemetry.events import emit

MAX_RETRY_SPREAD_S = 600.0  # retries are spread over at most this time


@dataclass(slots=True)
class PermitWaiter:
    """A call that waits for a permit.

    ``max_wait_s`` limits the wait for blocks and, with ``counts_queue``, for earlier waiters.
    """

    answer: "asyncio.Future[PermitWindow | float]"
    owner: object
    max_wait_s: float
    counts_queue: bool


class RetrySchedule:
    """Spreads the retries of one queue over time, so that they do not all start at once."""

    def __init__(self) -> None:
        self._next_retry_at = float("-inf")

    def reserve_retry(self, now: float, wait: float, rate_per_s: float | None) -> float:
        """Return the seconds until the retry: at least ``wait``; exactly ``wait`` if there is no rate."""
        if not rate_per_s:
            return wait
        retry_at = max(now + wait, self._next_retry_at)
        self._next_retry_at = min(retry_at + 1 / rate_per_s, now + wait + MAX_RETRY_SPREAD_S)
        return retry_at - now


MIN_SLOT_POLL_S, MAX_SLOT_POLL_S = 0.02, 0.5  # for a slot that another process holds


class LimiterSlots:
    """The concurrency slots of one process.

    Slots in use are always counted, because the limiter in the database may start or stop limiting concurrency.
    """

    def __init__(self, *, is_counted: bool) -> None:
        self.is_counted = is_counted
        self.held = self.in_use = 0
        self.has_unreported = False  # whether the process holds fewer slots than the database knows
        self.is_contended = False  # whether other processes wait for slots too
        self._use_s: float | None = None  # the average time for which a slot is used

    @property
    def free_count(self) -> int:
        return self.held - self.in_use

    @property
    def is_full(self) -> bool:
        return self.is_counted and self.free_count <= 0

    def count_missing_slots(self, waiting: int) -> int:
        return max(0, waiting - self.free_count) if self.is_counted else 0

    def release_used_slot(self, seconds: float | None) -> None:
        self.in_use -= 1
        if seconds is not None:
            self._use_s = update_moving_average(self._use_s, seconds)

    def give_up_held_slots(self, places: int) -> None:
        if places > 0:
            self.held -= places
            self.has_unreported = True

    def apply_grant(self, answer: PermitGrant, *, lacks: bool) -> None:
        self.held += answer.places
        self.is_contended = answer.crowded or lacks
        self.is_counted = answer.counted
        if not self.is_counted:
            self.give_up_held_slots(self.held)

    @property
    def poll_interval_s(self) -> float:
        """The seconds until the next check for a free slot."""
        return clamp(self._use_s or 0.0, MIN_SLOT_POLL_S, MAX_SLOT_POLL_S)


MAX_PERMITS_PER_REQUEST = 1_000
LIMITER_ERROR_PAUSE_S = 1.0
TIMER_SLACK_S = 0.0005  # some event loops round timers to milliseconds: rather late than too early


class LimiterQueue:
    """A first-in, first-out queue of calls. It queries the database only when it has no unused permits left."""

    def __init__(self, trips: LimiterClient, limiter: Limiter, key: str) -> None:
        self.name, self.key, self._member = limiter.name, key, key
        self._client = trips
        self._rate_per_s = limiter.permits_per_s
        self._slack_s = limiter.permit_validity_s
        self._slots = LimiterSlots(is_counted=limiter.concurrency is not None)
        self._permit_stock = PermitCache()
        self._waiters: deque[PermitWaiter] = deque()
        self._request_task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_request_at = self._last_request_at = self._opens_at = self._blocked_until = float("-inf")
        self._retry_schedule = RetrySchedule()
        self._throttled_total = 0  # since the process started
        self._refill_below = 0  # more permits are requested if there are fewer unused ones
        self._active_runs = 0
        self._permits_since_request = 0
        self.unreported_permits = 0  # since the last report
        self.unreported_wait_s = 0.0
        self._permits_per_s: float | None = None  # permits used per second
        self._throttle_reporter = ThrottleReporter(self, trips)

    # Calls that request a permit.

    async def acquire_or_get_wait_s(
        self, owner: object, *, max_wait_s: float = MAX_BLOCK_WAIT_S, counts_queue: bool = False
    ) -> float | None:
        """Acquire a permit; return None when the call may start now.

        If the call would wait longer than ``max_wait_s``, return the seconds until a retry; 0 if ``cancel_waiters`` was
        called. ``max_wait_s`` limits the wait for blocks and, with ``counts_queue``, for earlier waiters.
        """
        first = False
        while True:
            now = time.monotonic()
            if (first or not self._waiters) and self._take_permit_and_slot(now) is not None:
                if (
                    len(self._permit_stock) < self._refill_below
                    and now >= self._next_request_at
                    and self._request_task is None
                ):
                    self._admit_waiting_calls()
                return None
            wait = self._expected_wait_s(now, in_line=counts_queue)
            if wait > max_wait_s:
                self.recheck_block()
                return self._retry_schedule.reserve_retry(now, wait, self._rate_per_s if counts_queue else None)
            answer = await self._wait_for_permit_or_rejection(owner, max_wait_s, in_line=counts_queue, first=first)
            if isinstance(answer, float):
                return answer
            if answer.valid_until >= time.monotonic():
                return None
            self._slots.in_use -= 1  # the event loop was too slow: the permit has expired
            first = True

    async def _wait_for_permit_or_rejection(
        self, run: object, patience: float, *, in_line: bool, first: bool
    ) -> PermitWindow | float:
        waiter = PermitWaiter(asyncio.get_running_loop().create_future(), run, patience, in_line)
        if first:
            self._waiters.appendleft(waiter)
        else:
            self._waiters.append(waiter)
        self._admit_waiting_calls()
        since = time.monotonic()
        try:
            answer = await waiter.answer
            self.unreported_wait_s += time.monotonic() - since
            return answer
        except asyncio.CancelledError:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif (
                waiter.answer.done()
                and not waiter.answer.cancelled()
                and isinstance(waiter.answer.result(), PermitWindow)
            ):
                self.release_slot(None)
            raise

    def release_slot(self, seconds: float | None) -> None:
        """Release the slot of a call that took ``seconds``; None if the call did not start."""
        slots = self._slots
        slots.release_used_slot(seconds)
        if not slots.is_counted:
            return
        if not self._waiters:
            slots.give_up_held_slots(slots.free_count)
        elif slots.is_contended:  # other processes wait too: release the slot for all of them
            slots.give_up_held_slots(min(1, slots.free_count))
            self._next_request_at = max(self._next_request_at, time.monotonic() + MIN_SLOT_POLL_S)
        self._admit_waiting_calls()

    def begin_prefetching(self) -> None:
        """Request permits ahead of time, because a batch of many calls starts."""
        self._active_runs += 1

    def end_prefetching(self) -> None:
        self._active_runs -= 1
        if not self._active_runs:
            self._refill_below = 0
            self._return_unused_permits_and_slots()

    def cancel_waiters(self, owner: object) -> None:
        """End the waits of one owner."""
        for waiter in [waiter for waiter in self._waiters if waiter.owner is owner]:
            self._waiters.remove(waiter)
            if not waiter.answer.done():
                waiter.answer.set_result(0.0)
        self._return_unused_permits_and_slots()

    @property
    def is_idle(self) -> bool:
        places = self._slots.in_use or self._slots.has_unreported
        return not (
            self._waiters or self._active_runs or places or self._request_task or self._throttle_reporter.unreported
        )

    def remaining_block_s(self) -> float:
        return max(0.0, self._blocked_until - time.monotonic())

    def recheck_block(self) -> None:
        """Check from time to time whether a known block was removed; called only when a call wants to start."""
        if self._next_request_at <= time.monotonic() < self._blocked_until:
            self._start_request_unless_running()

    @property
    def rate_per_s(self) -> float | None:
        """Permits per second for all workers together; None if the rate is not limited."""
        return self._rate_per_s

    @property
    def waiter_count(self) -> int:
        return len(self._waiters)

    # Permits.

    def _take_permit_and_slot(self, now: float) -> PermitWindow | None:
        if now < self._blocked_until or self._slots.is_full:
            return None
        moment = (
            PermitWindow(now, math.inf, now) if self._rate_per_s is None else self._permit_stock.take_valid_permit(now)
        )
        if moment is not None:
            self._slots.in_use += 1
            self._permits_since_request += 1
            self.unreported_permits += 1
        return moment

    def _expected_wait_s(self, now: float, *, in_line: bool) -> float:
        if not in_line or not self._rate_per_s:
            return max(0.0, self._blocked_until - now)
        before = max(0, len(self._waiters) - len(self._permit_stock)) / self._rate_per_s
        return max(0.0, self._blocked_until - now, self._opens_at - now) + before

    def _admit_waiting_calls(self) -> None:
        """Admit the calls that may start, request more permits if needed, and set the timer for the next time."""
        now = time.monotonic()
        self._permit_stock.drop_expired(now)
        if now < max(self._blocked_until, self._opens_at):
            self._reject_waiters_beyond_max_wait(now)
        while self._waiters:
            if self._waiters[0].answer.done():
                self._waiters.popleft()
                continue
            moment = self._take_permit_and_slot(now)
            if moment is None:
                break
            self._waiters.popleft().answer.set_result(moment)
        if self._slots.has_unreported or self._should_request(now):
            self._start_request_unless_running()
        self._set_timer()

    def _reject_waiters_beyond_max_wait(self, now: float) -> None:
        blocked, opens = self._blocked_until - now, self._opens_at - now
        waits = [(waiter, max(blocked, opens) if waiter.counts_queue else blocked) for waiter in self._waiters]
        for waiter, wait in waits:
            if waiter.max_wait_s < wait:
                self._waiters.remove(waiter)
                if not waiter.answer.done():
                    waiter.answer.set_result(
                        self._retry_schedule.reserve_retry(now, wait, self._rate_per_s if waiter.counts_queue else None)
                    )

    def _needs_permits(self) -> bool:
        waiting = len(self._waiters)
        if self._slots.count_missing_slots(waiting):
            return True
        return self._rate_per_s is not None and (
            waiting > len(self._permit_stock) or len(self._permit_stock) < self._refill_below
        )

    def _should_request(self, now: float) -> bool:
        return now >= self._next_request_at and self._needs_permits()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiters:
            return
        begins = self._permit_stock.next_valid_from
        times = [] if begins is None or self._slots.is_full else [max(begins, self._blocked_until)]
        if self._request_task is None and self._needs_permits():
            times.append(self._next_request_at)
        elif self._rate_per_s is None and not self._slots.is_full:
            times.append(self._blocked_until)
        if times:
            wait = min(times) - time.monotonic()
            self._timer = asyncio.get_running_loop().call_later(
                max(0.0, wait) + TIMER_SLACK_S, self._admit_waiting_calls
            )

    def _start_request_unless_running(self) -> None:
        if self._request_task is None:
            self._request_task = self._client.run_in_background(self._report_slots_or_request_permits())

    async def _report_slots_or_request_permits(self) -> None:
        """Send one request at a time, so that the database learns the held slots in the right order."""
        try:
            if self._slots.has_unreported and not self._should_request(time.monotonic()):
                await self._report_held_slots()
            else:
                await self._request_permits()
        except Exception as error:  # noqa: BLE001  waiting calls must not wait forever
            emit("loop.failed", loop="limits", error=describe_exception(error))
            self._next_request_at = time.monotonic() + LIMITER_ERROR_PAUSE_S
        finally:
            self._request_task = None
        self._admit_waiting_calls()
        if not self._waiters and not self._active_runs:
            self._return_unused_permits_and_slots()

    async def _report_held_slots(self) -> None:
        self._slots.has_unreported = False
        await self._client.report_held_slots(self.name, self.key, self._slots.held, self._member)

    async def _request_permits(self) -> None:
        slots, throttled, unreported = self._slots, self._throttled_total, self._throttle_reporter.unreported
        wanted = self._plan_request_size(time.monotonic())
        more = slots.count_missing_slots(len(self._waiters))
        slots.has_unreported = False
        request = {"wanted": wanted, "places": more, "held": slots.held, "idle": max(0, slots.free_count)}
        self.key, answer = await self._client.request_permits(self.name, self.key, member=self._member, **request)
        is_throttled = bool(unreported) or throttled < self._throttled_total
        self._apply_grant(answer, time.monotonic(), lacks=more > answer.places, refused=is_throttled)

    def _plan_request_size(self, now: float) -> int:
        """Return how many permits to request: for the waiting calls and for those expected until the next request."""
        if self._rate_per_s is None:
            return 0
        self._permits_per_s = update_moving_average(
            self._permits_per_s, self._permits_since_request / max(now - self._last_request_at, 0.001)
        )
        self._permits_since_request, self._last_request_at = 0, now
        ahead = math.ceil(self._permits_per_s * PERMIT_LOOKAHEAD_S) if self._active_runs else 0
        self._refill_below = ahead // 2
        return int(clamp(len(self._waiters) + ahead - len(self._permit_stock), 1, MAX_PERMITS_PER_REQUEST))

    def _apply_grant(self, answer: PermitGrant, now: float, *, lacks: bool, refused: bool) -> None:
        """Apply a grant; ``refused`` is set if a call was throttled that the database may not know of yet."""
        was = self._slots.is_counted, self._rate_per_s is None
        self._slots.apply_grant(answer, lacks=lacks)
        self._rate_per_s, self._slack_s = answer.pace, answer.slack
        if self._client.clock_fit is not None:
            self._permit_stock.add_permits(answer.starts, self._client.clock_fit, answer.slack)
        if not refused:  # the known block may have been removed
            self._blocked_until = float("-inf")
        self._next_request_at = now
        if answer.blocked > 0:
            self._extend_block(now + answer.blocked)
        self._opens_at = now + answer.wait
        if answer.wait > 0:
            self._next_request_at = now + min(answer.wait, MAX_BLOCK_WAIT_S)
        elif not answer.starts and not answer.places and was == (answer.counted, answer.pace is None):
            self._next_request_at = now + self._slots.poll_interval_s
        if now < self._blocked_until:
            self._next_request_at = max(self._next_request_at, min(self._blocked_until, now + MAX_BLOCK_WAIT_S))

    def _return_unused_permits_and_slots(self) -> None:
        """Return unused permits and slots if no call needs them."""
        if not self._waiters and not self._active_runs and len(self._permit_stock):
            self._client.return_permits_in_background(self.name, self.key, self._permit_stock.drain(), self._slack_s)
        if not self._waiters:
            self._slots.give_up_held_slots(self._slots.free_count)
            if self._slots.has_unreported:
                self._start_request_unless_running()

    # Throttled calls.

    def block_and_report_throttled(self, after: object, started: float) -> None:
        """Block the limiter for ``after`` seconds, because a call that started at ``started`` was throttled."""
        self._throttled_total += 1
        self._extend_block(time.monotonic() + self._throttle_reporter.add_throttled_call(after, started))
        self._admit_waiting_calls()

    def _extend_block(self, until: float) -> None:
        self._blocked_until = max(self._blocked_until, until)
        self._next_request_at = max(self._next_request_at, min(until, time.monotonic() + MAX_BLOCK_WAIT_S))
        self._permit_stock.drain()
