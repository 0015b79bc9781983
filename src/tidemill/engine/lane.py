"""One lane of a worker process: choose a job, claim a batch, run it, decide its outcomes, flush, finalize the job."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID, uuid4

from tidemill.core.batch import Lease
from tidemill.core.child_exit import POISON_EXPIRY_COUNT
from tidemill.core.decide import make_lost_worker_failure
from tidemill.core.errors import StaleLease
from tidemill.core.job import Item
from tidemill.core.kinds import Handler
from tidemill.core.outcome import BatchExceptions, Outcome
from tidemill.engine.admission import Admission
from tidemill.engine.batch_handler_executor import BatchHandlerExecutor, BatchInterrupted
from tidemill.engine.children.shared_state import LaneState
from tidemill.engine.context import EngineContext
from tidemill.engine.flusher import Flusher, write_verdicts
from tidemill.engine.item_handler_executor import ItemHandlerExecutor
from tidemill.engine.periodic_loop import PeriodicLoop
from tidemill.engine.verdicts import BatchDecision, decide, decide_batch
from tidemill.failpoints import failpoint
from tidemill.runtime import FindKindHooks
from tidemill.store import batch_leases, item_records, job_lifecycle
from tidemill.store import batch_leases as store
from tidemill.store.batch_leases import ClaimableJob
from tidemill.store.database import Database
from tidemill.store.job_events import bind_job_fields, report_job_closed
from tidemill.store.outcome_flush import FlushResult
from tidemill.telemetry.events import bind_fields, emit

RUNNABLE_CACHE_S = 0.5
OWNER_LIMIT_POLL_S = 0.1
HINTED_JOB_BATCHES = 16  # batches of a hinted job that are claimed first
MAX_HINTED_JOBS = 64


def filter_claimable_jobs(jobs: Sequence[ClaimableJob], max_jobs: int) -> list[ClaimableJob]:
    """Return the jobs that may be claimed from: an owner with ``max_jobs`` running jobs cannot start another."""
    return [job for job in jobs if job.turning or job.owner_turning < max_jobs]


def count_job_as_running(jobs: Sequence[ClaimableJob], job: ClaimableJob) -> list[ClaimableJob]:
    """Return the same jobs, with one of them counted as running."""
    if job.turning:
        return list(jobs)
    return [
        replace(other, turning=other.turning or other.id == job.id, owner_turning=other.owner_turning + 1)
        if other.owner_id == job.owner_id
        else other
        for other in jobs
    ]


def choose_fair_job(jobs: Sequence[ClaimableJob], rng: random.Random) -> ClaimableJob:
    """Choose a random owner, then one of the owner's jobs, weighted by priority."""
    owner = rng.choice(sorted({job.owner_id for job in jobs}))
    owned_jobs = [job for job in jobs if job.owner_id == owner]
    return rng.choices(owned_jobs, weights=[2.0 ** max(-20, min(job.priority, 20)) for job in owned_jobs])[0]


def find_hinted_job(jobs: Sequence[ClaimableJob], hinted: Iterable[UUID]) -> ClaimableJob | None:
    """Return the first hinted job that may be claimed from, if any."""
    by_id = {job.id: job for job in jobs}
    return next((by_id[job_id] for job_id in hinted if job_id in by_id), None)


class BatchClaimer(Protocol):
    """Claims the next batch for a lane."""

    poll_interval_s: float  # how long to wait after a claim that found nothing

    async def claim(self, lease_id: UUID, lane: object = None) -> Lease | None:
        """Claim a batch for a lane that has finished its previous one."""


class FairClaimer:
    """Chooses a job from a briefly cached list of jobs with due batches, and claims a batch of it.

    At most ``max_lanes_per_owner`` lanes run batches of one owner, so that other owners never wait for a long batch.
    """

    def __init__(self, context: EngineContext, *, max_lanes_per_owner: int | None = None) -> None:
        self._max_lanes_per_owner = max_lanes_per_owner
        self._owner_by_lane: dict[object, int] = {}  # of the batch that the lane runs or is about to claim
        self.poll_interval_s = self._idle_poll_s = context.settings.poll_ms / 1000
        self._context = context
        self._runnable_jobs: list[ClaimableJob] = []
        self._listed_at = float("-inf")
        self._hinted_batches: dict[UUID, int] = {}  # job -> batches that are claimed before those of other jobs
        self._was_last_hinted = False
        self._rng = random.Random()  # noqa: S311  fairness, not secrecy

    def invalidate_job_cache(self) -> None:
        """List the runnable jobs again at the next claim, because there may be new work."""
        self._listed_at = float("-inf")

    def prefer_hinted_job(self, job_id: UUID) -> None:
        """Claim up to HINTED_JOB_BATCHES batches of this job first; if other jobs wait, only every other batch."""
        self._hinted_batches[job_id] = HINTED_JOB_BATCHES
        while len(self._hinted_batches) > MAX_HINTED_JOBS:
            del self._hinted_batches[next(iter(self._hinted_batches))]

    async def claim(self, lease_id: UUID, lane: object = None) -> Lease | None:
        """Claim a batch of any job; return None if no job has a due batch that this lane may run."""
        self._owner_by_lane.pop(lane, None)
        now = time.monotonic()
        if not self._runnable_jobs or now - self._listed_at > RUNNABLE_CACHE_S:
            self._runnable_jobs = await self._context.db.read(
                store.list_claimable_jobs,
                self._context.handlers.kinds(),
                self._hinted_batches,
                self._context.missing_requirements,
            )
            self._listed_at = now
        candidates = filter_claimable_jobs(self._runnable_jobs, self._context.settings.max_concurrent_jobs)
        self.poll_interval_s = self._idle_poll_s
        if self._runnable_jobs and not candidates:  # all owners are at their limit: no event reports the end of a job
            self.poll_interval_s = min(OWNER_LIMIT_POLL_S, self._idle_poll_s)
            self.invalidate_job_cache()
        while candidates:
            lanes_by_owner = Counter(self._owner_by_lane.values())
            most = self._max_lanes_per_owner
            candidates = [job for job in candidates if most is None or lanes_by_owner[job.owner_id] < most]
            if not candidates:
                return None  # the lanes that run batches of these owners take the next ones, and use the hints
            is_choice = len(candidates) > 1 or self._hinted_batches
            job = self._choose_job(candidates) if is_choice else candidates[0]
            self._owner_by_lane[lane] = job.owner_id
            lease = await claim_from_job(self._context, job.id, job.kind, lease_id)
            if lease is not None:
                if not job.turning:
                    self._runnable_jobs = count_job_as_running(self._runnable_jobs, job)
                return lease
            del self._owner_by_lane[lane]
            candidates.remove(job)
            self._runnable_jobs = [other for other in self._runnable_jobs if other.id != job.id]
        self._hinted_batches.clear()  # nothing is due, so the hints are used up
        return None

    def _choose_job(self, candidates: Sequence[ClaimableJob]) -> ClaimableJob:
        hinted = None
        if self._hinted_batches and not self._was_last_hinted:
            hinted = find_hinted_job(candidates, self._hinted_batches)
        self._was_last_hinted = hinted is not None and len(candidates) > 1
        if hinted is None:
            return choose_fair_job(candidates, self._rng)
        self._hinted_batches[hinted.id] -= 1
        if not self._hinted_batches[hinted.id]:
            del self._hinted_batches[hinted.id]
        return hinted


class SingleJobClaimer:
    """Claims batches of one job, for a caller that waits for it. Fairness between owners does not apply."""

    def __init__(self, context: EngineContext) -> None:
        self.poll_interval_s = context.settings.poll_ms / 1000
        self._context = context
        self._job: tuple[UUID, str] | None = None

    def set_job_to_claim_from(self, job_id: UUID, kind: str) -> None:
        self._job = (job_id, kind)

    async def claim(self, lease_id: UUID, lane: object = None) -> Lease | None:  # noqa: ARG002  all lanes run one job
        return None if self._job is None else await claim_from_job(self._context, *self._job, lease_id)


async def claim_from_job(context: EngineContext, job_id: UUID, kind: str, lease_id: UUID) -> Lease | None:
    """Claim a batch of this job; return None if none is due, or if a limiter or a missing declaration prevents it."""
    handler, permits_per_s = context.handlers.get(kind), None
    if handler.limiter is not None:
        if context.limiter_registry.is_handler_blocked(handler):
            return None
        permits_per_s = context.limiter_registry.get_rate_per_s(handler)

    def may_run(ready: Lease) -> bool:
        if ready.limiter is not None and context.limiter_registry.is_limiter_blocked(ready.limiter):
            return False
        return context.check_and_record_missing_requirements(kind, ready.requires)

    slots = context.get_semaphore(handler).slots
    items = context.sizing.compute_claim_size(handler, slots=slots, permits_per_s=permits_per_s)
    claim = store.BatchClaim(
        job_id,
        lease_id,
        context.worker,
        items,
        context.sizing.compute_lease_seconds(kind, items),
        may_run,
        may_be_leased=False,
    )
    failpoint("claim.before")
    lease = await context.db.run_async_commit(store.claim_batch, claim)
    if lease is not None:
        failpoint("claim.after")
    return lease


class Lane(PeriodicLoop):
    """Processes one batch at a time."""

    name = "lane"

    def __init__(self, context: EngineContext, claimer: BatchClaimer, lane_state: LaneState) -> None:
        super().__init__()
        self._context = context
        self._claimer = claimer
        self._lane_state = lane_state

    async def tick(self) -> float:
        """Claim → run → decide → flush → finalize, for one batch."""
        context, lease_id = self._context, uuid4()
        self._lane_state.reset_and_record_lease(lease_id)
        lease = await self._claimer.claim(lease_id, self)
        if lease is None:
            self._lane_state.clear_lease()
            return self._claimer.poll_interval_s
        self._has_worked = True  # even if this first batch damages the process
        handler = context.handlers.get(lease.kind)
        with bind_fields(**lease.event_fields):
            emit(
                "batch.claimed",
                job=lease.job_id,
                kind=lease.kind,
                batch=lease.batch_id,
                size=lease.open,
                isolated=lease.isolated,
            )
            try:
                if lease.expiries >= POISON_EXPIRY_COUNT:
                    flusher = await self._fail_first_item_as_poison(lease, handler)
                else:
                    async with context.isolation_lock.hold(exclusive=lease.isolated):
                        run = self._run_batch_handler if handler.is_batch else self._run_item_handler
                        flusher = await run(lease, handler)
                await fail_or_close_job_if_due(
                    context.db, lease.job_id, context.find_kind_hooks, failed=flusher.written.failed
                )
            except Exception:
                # A bug, or a schema of another version. Release the batch, or it would stay leased.
                await context.db.run(batch_leases.release_rest_of_batch, lease, after_crash=True, losses=1)
                emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)
                self._lane_state.clear_lease()
                raise
        self._lane_state.clear_lease()  # not in a finally: if the process ends here, its parent needs the lease
        return 0

    async def _run_item_handler(self, lease: Lease, handler: Handler) -> Flusher:
        context = self._context
        self._lane_state.set_timeout(handler.timeout)
        items = await context.db.read(item_records.read_unsettled_items, lease, exact=handler.exact)
        failpoint("read.items")
        admission = Admission(context, handler, lease)
        flusher = Flusher(context, lease, handler, self._lane_state)
        columns, semaphore = flusher.columns, admission.semaphore

        def buffer_verdict(item: Item, outcome: Outcome, duration_ms: int, slot: int) -> Awaitable[None] | None:
            verdict = decide(item, outcome, handler, duration_ms, columns, semaphore.backoff_factor)
            return flusher.add_verdict(verdict, slot)

        started = finished = time.monotonic()
        is_lease_lost = False
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(flusher.run())
                await ItemHandlerExecutor(context, handler, self._lane_state, admission, buffer_verdict).run(items)
                finished = time.monotonic()  # the last flush is not part of the items' time
                flusher.request_close()
        except* StaleLease:
            is_lease_lost = True
        if not is_lease_lost:
            await self._record_pace_and_release(flusher.lease, lease.open - flusher.lease.open, finished - started)
        return flusher

    async def _run_batch_handler(self, lease: Lease, handler: Handler) -> Flusher:
        """Run a batch through a set-based handler; the executor writes its outcomes in one transaction."""
        context = self._context
        self._lane_state.set_timeout(handler.timeout)
        items = await context.db.read(item_records.read_unsettled_items_fast, lease, exact=handler.exact)
        admission = Admission(context, handler, lease)
        flusher = Flusher(context, lease, handler, self._lane_state)
        columns, semaphore = flusher.columns, admission.semaphore

        def decide_items(outcomes: BatchExceptions, seconds: float) -> BatchDecision:
            return decide_batch(items, outcomes, lease, handler, seconds, columns, semaphore.backoff_factor)

        executor = BatchHandlerExecutor(context, lease, handler, self._lane_state, admission, columns, decide_items)
        try:
            result = await executor.run(items)
        except BatchInterrupted:
            await self._record_pace_and_release(lease, 0, 0.0)
            return flusher
        if result is FlushResult.APPLIED:
            flusher.report_durable_verdicts(executor.decision.verdicts, sparse_done=executor.decision.sparse_done)
            lease = lease.with_flushed(len(items))
        elif result is FlushResult.STALE:
            flusher.report_lease_lost(len(items))
        is_over = result is not FlushResult.APPLIED  # stale, written before, postponed or split: the lease is gone
        # A batch that failed shows the pace only if it was large. A part of a split batch has a few rows, and one of
        # them may have taken a minute: claims of other jobs would shrink to one row.
        is_typical = executor.has_handler_returned or 2 * len(items) >= context.sizing.get_max_batch_items(handler)
        seconds = executor.handler_seconds if is_typical else 0.0
        await self._record_pace_and_release(lease, len(items), seconds, release=not is_over)
        return flusher

    async def _fail_first_item_as_poison(self, lease: Lease, handler: Handler) -> Flusher:
        """Fail the item during whose attempts the leases expired, without another attempt; release the others."""
        context, flusher = self._context, Flusher(self._context, lease, handler, self._lane_state)
        items = (await context.db.read(item_records.read_unsettled_items, lease, exact=handler.exact))[:1]
        failure = make_lost_worker_failure(lease.expiries)
        verdicts = [decide(item._replace(attempt=item.attempt - 1), failure, handler, 0) for item in items]
        seconds = context.sizing.compute_lease_seconds(lease.kind, lease.open)
        written = await write_verdicts(context.db, lease, verdicts, handler, lease_seconds=seconds)
        if written.result is FlushResult.STALE:
            flusher.report_lease_lost(len(verdicts))
            return flusher
        for item in items:
            emit("item.poison", job=lease.job_id, seq=item.seq)
        flusher.report_durable_verdicts(written.verdicts)
        await self._record_pace_and_release(written.lease, 0, 0.0)
        return flusher

    async def _record_pace_and_release(self, lease: Lease, items: int, seconds: float, *, release: bool = True) -> None:
        """Record the pace of a batch, and release its unsettled items."""
        if seconds > 0 and not lease.isolated:  # isolated items and batches that did not start would distort the pace
            self._context.sizing.record_pace(lease.kind, items, seconds)
        if release and lease.open:
            failpoint("release.before")
            await self._context.db.run(batch_leases.release_rest_of_batch, lease)
            emit("batch.released", job=lease.job_id, batch=lease.batch_id, items=lease.open)


async def fail_or_close_job_if_due(db: Database, job_id: UUID, find_kind_hooks: FindKindHooks, *, failed: int) -> None:
    """Fail the job if its failure policy requires it, and close it if it has no open items.

    The worker calls this after each batch; the maintenance loop does the same for all jobs, later.
    """
    if failed:
        await enforce_failure_policy(db, job_id)
    if await db.read(job_lifecycle.has_no_open_batch, job_id):
        await close_and_report_job_if_drained(db, job_id, find_kind_hooks)


async def close_and_report_job_if_drained(db: Database, job_id: UUID, find_kind_hooks: FindKindHooks) -> None:
    job = await db.run(job_lifecycle.close_job_if_drained, job_id)
    if job is not None:
        failpoint("close.after_commit")
        hooks = find_kind_hooks(job.kind)
        report_job_closed(job, None if hooks is None else hooks.after_close)


async def enforce_failure_policy(db: Database, job_id: UUID) -> None:
    reason = await db.run(job_lifecycle.enforce_failure_policy, job_id)
    if reason is not None:
        async with bind_job_fields(db, job_id):
            emit("job.failed", job=job_id, reason=reason)
