"""Chooses the job that a worker claims from next: fair between owners, then by priority."""

import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from tidemill.core.batch import Lease
from tidemill.engine.context import EngineContext
from tidemill.failpoints import failpoint
from tidemill.store import batch_leases as store
from tidemill.store.batch_leases import ClaimableJob

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
