"""Which job next, and how much of it."""

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from tidemill.core.batch import Lease
from tidemill.engine.context import EngineContext
from tidemill.store import batch_leases as store
from tidemill.store.batch_leases import ClaimableJob

RUNNABLE_CACHE_S = 0.5
OWNER_LIMIT_POLL_S = 0.1
HINTED_JOB_BATCHES = 16  # batches of a job that a hint names, before the choice is fair again
MAX_HINTED_JOBS = 64


def filter_startable(jobs: Sequence[ClaimableJob], max_jobs: int) -> list[ClaimableJob]:
    """The jobs that may be worked on: an owner who has ``max_jobs`` turning gets no further one started."""
    return [job for job in jobs if job.turning or job.owner_turning < max_jobs]


def mark_job_started(jobs: Sequence[ClaimableJob], job: ClaimableJob) -> list[ClaimableJob]:
    """The same jobs, now that one of them is being worked on."""
    if job.turning:
        return list(jobs)
    return [
        replace(other, turning=other.turning or other.id == job.id, owner_turning=other.owner_turning + 1)
        if other.owner_id == job.owner_id
        else other
        for other in jobs
    ]


def choose_fair_job(jobs: Sequence[ClaimableJob], rng: random.Random) -> ClaimableJob:
    """Fair between owners, then by priority: an owner at random, then a job of theirs, weighted."""
    owner = rng.choice(sorted({job.owner_id for job in jobs}))
    theirs = [job for job in jobs if job.owner_id == owner]
    return rng.choices(theirs, weights=[2.0 ** max(-20, min(job.priority, 20)) for job in theirs])[0]


def find_hinted_job(jobs: Sequence[ClaimableJob], hinted: Iterable[UUID]) -> ClaimableJob | None:
    """The first job that was hinted at, if it may be worked on."""
    by_id = {job.id: job for job in jobs}
    return next((by_id[job_id] for job_id in hinted if job_id in by_id), None)


class BatchClaimer(Protocol):
    """Whom a lane asks for its next batch."""

    @property
    def poll_interval_s(self) -> float:
        """How long there may be nothing, after there was nothing."""

    async def claim(self, lease_id: UUID) -> Lease | None: ...


class FairClaimer:
    """Chooses a job from a short-lived list of those with work, and takes a batch of it."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._runnable_jobs: list[ClaimableJob] = []
        self._listed_at = float("-inf")
        self._hinted_batches: dict[UUID, int] = {}  # how many batches of a job go before those of others
        self._was_last_hinted = False
        self._are_owners_at_limit = False  # owners of all that could be done have as many jobs turning as they may
        self._rng = random.Random()  # noqa: S311  fairness, not secrecy

    def invalidate_cache(self) -> None:
        """Somebody said there is work: the list is old."""
        self._listed_at = float("-inf")

    def prefer_job(self, job_id: UUID) -> None:
        """A hint: batches of this job first, until it has none or had its share; every other one, if others wait."""
        self._hinted_batches[job_id] = HINTED_JOB_BATCHES
        while len(self._hinted_batches) > MAX_HINTED_JOBS:
            del self._hinted_batches[next(iter(self._hinted_batches))]

    async def claim(self, lease_id: UUID) -> Lease | None:
        """A batch of some job, or None when no job has anything due."""
        candidates = filter_startable(await self._list_runnable(), self._context.settings.max_concurrent_jobs)
        self._are_owners_at_limit = bool(self._runnable_jobs) and not candidates
        if self._are_owners_at_limit:
            self.invalidate_cache()
        while candidates:
            job = self._choose_job(candidates)
            lease = await claim_from_job(self._context, job.id, job.kind, lease_id)
            if lease is not None:
                self._runnable_jobs = mark_job_started(self._runnable_jobs, job)
                return lease
            candidates.remove(job)
            self._runnable_jobs = [other for other in self._runnable_jobs if other.id != job.id]
        self._hinted_batches.clear()  # nothing is due: they are spent
        return None

    @property
    def poll_interval_s(self) -> float:
        """Nobody tells when a job stops turning, so that another may begin: that is looked for more often."""
        poll_s = self._context.settings.poll_ms / 1000
        return min(OWNER_LIMIT_POLL_S, poll_s) if self._are_owners_at_limit else poll_s

    def _choose_job(self, candidates: Sequence[ClaimableJob]) -> ClaimableJob:
        hinted = None if self._was_last_hinted else find_hinted_job(candidates, self._hinted_batches)
        self._was_last_hinted = hinted is not None and len(candidates) > 1
        if hinted is None:
            return choose_fair_job(candidates, self._rng)
        self._hinted_batches[hinted.id] -= 1
        if not self._hinted_batches[hinted.id]:
            del self._hinted_batches[hinted.id]
        return hinted

    async def _list_runnable(self) -> list[ClaimableJob]:
        now = time.monotonic()
        if not self._runnable_jobs or now - self._listed_at > RUNNABLE_CACHE_S:
            self._runnable_jobs = await self._context.db.run_async_commit(
                store.list_claimable_jobs, self._context.handlers.kinds(), self._hinted_batches
            )
            self._listed_at = now
        return self._runnable_jobs


class SingleJobClaimer:
    """Takes batches of the one job that was asked for: somebody waits for it, so nobody's turn is counted."""

    def __init__(self, context: EngineContext) -> None:
        self._context = context
        self._job: tuple[UUID, str] | None = None

    @property
    def poll_interval_s(self) -> float:
        return self._context.settings.poll_ms / 1000

    def select_job(self, job_id: UUID, kind: str) -> None:
        self._job = (job_id, kind)

    async def claim(self, lease_id: UUID) -> Lease | None:
        return None if self._job is None else await claim_from_job(self._context, *self._job, lease_id)


async def claim_from_job(context: EngineContext, job_id: UUID, kind: str, lease_id: UUID) -> Lease | None:
    """A batch of this job, or None when nothing of it is due, or its limiter is blocked for a while."""
    handler = context.handlers.get(kind)
    if context.limiter_registry.is_handler_blocked(handler):
        return None
    items = context.sizing.compute_claim_size(
        handler,
        slots=context.get_semaphore(handler).slots,
        permits_per_s=context.limiter_registry.get_rate_per_s(handler),
    )
    claim = store.BatchClaim(
        job_id,
        lease_id,
        context.worker,
        items,
        context.sizing.compute_lease_seconds(kind, items),
        context.limiter_registry.is_limiter_blocked,
        may_be_leased=False,
    )
    return await context.db.run_async_commit(store.claim_batch, claim)
