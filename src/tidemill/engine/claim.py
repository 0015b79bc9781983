"""Which job next, and how much of it."""

import itertools
import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from tidemill.domain.batch import Lease
from tidemill.engine import tell
from tidemill.engine.context import Context
from tidemill.store import claim as store
from tidemill.store.claim import Runnable
from tidemill.store.database import Connection, relaxed

CACHE_S = 0.5
CROWDED_S = 0.1
PREFERRED = 16  # batches of a job that a hint names, before the choice is fair again
MAX_HINTED = 64


def startable(jobs: Sequence[Runnable], max_jobs: int) -> list[Runnable]:
    """The jobs that may be worked on: an owner who has ``max_jobs`` turning gets no further one started."""
    return [job for job in jobs if job.turning or job.owner_turning < max_jobs]


def started(jobs: Sequence[Runnable], job: Runnable) -> list[Runnable]:
    """The same jobs, now that one of them is being worked on."""
    if job.turning:
        return list(jobs)
    return [
        replace(other, turning=other.turning or other.id == job.id, owner_turning=other.owner_turning + 1)
        if other.owner_id == job.owner_id
        else other
        for other in jobs
    ]


def choose(jobs: Sequence[Runnable], rng: random.Random) -> Runnable:
    """Fair between owners, then by priority: an owner at random, then a job of theirs, weighted."""
    owner = rng.choice(sorted({job.owner_id for job in jobs}))
    theirs = [job for job in jobs if job.owner_id == owner]
    return rng.choices(theirs, weights=[2.0 ** max(-20, min(job.priority, 20)) for job in theirs])[0]


def prefer(jobs: Sequence[Runnable], hinted: Iterable[UUID]) -> Runnable | None:
    """The first job that was hinted at, if it may be worked on."""
    by_id = {job.id: job for job in jobs}
    return next((by_id[job_id] for job_id in hinted if job_id in by_id), None)


class Chooser(Protocol):
    """Whom a lane asks for its next batch."""

    @property
    def pause_s(self) -> float:
        """How long there may be nothing, after there was nothing."""

    async def claim(self, lease_id: UUID) -> Lease | None: ...


class Claimer:
    """Chooses a job from a short-lived list of those with work, and takes a batch of it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: list[Runnable] = []
        self._listed_at = float("-inf")
        self._hinted: dict[UUID, int] = {}  # how many batches of a job go before those of others
        self._was_hinted = False
        self._is_crowded = False  # owners of all that could be done have as many jobs turning as they may
        self._rng = random.Random()  # noqa: S311  fairness, not secrecy

    def forget(self) -> None:
        """Somebody said there is work: the list is old."""
        self._listed_at = float("-inf")

    def prefer(self, job_id: UUID) -> None:
        """A hint: batches of this job first, until it has none or had its share; every other one, if others wait."""
        self._hinted[job_id] = PREFERRED
        while len(self._hinted) > MAX_HINTED:
            del self._hinted[next(iter(self._hinted))]

    async def claim(self, lease_id: UUID) -> Lease | None:
        """A batch of some job, or None when no job has anything due."""
        candidates = startable(await self._runnable(), self._context.settings.max_concurrent_jobs)
        self._is_crowded = bool(self._jobs) and not candidates
        if self._is_crowded:
            self.forget()
        while candidates:
            job = self._choose(candidates)
            lease = await claim_from(self._context, job.id, job.kind, lease_id)
            if lease is not None:
                self._jobs = started(self._jobs, job)
                return lease
            candidates.remove(job)
            self._jobs = [other for other in self._jobs if other.id != job.id]
        self._hinted.clear()  # nothing is due: they are spent
        return None

    @property
    def pause_s(self) -> float:
        """Nobody tells when a job stops turning, so that another may begin: that is looked for more often."""
        poll_s = self._context.settings.poll_ms / 1000
        return min(CROWDED_S, poll_s) if self._is_crowded else poll_s

    def _choose(self, candidates: Sequence[Runnable]) -> Runnable:
        hinted = None if self._was_hinted else prefer(candidates, self._hinted)
        self._was_hinted = hinted is not None and len(candidates) > 1
        if hinted is None:
            return choose(candidates, self._rng)
        self._hinted[hinted.id] -= 1
        if not self._hinted[hinted.id]:
            del self._hinted[hinted.id]
        return hinted

    async def _runnable(self) -> list[Runnable]:
        now = time.monotonic()
        if not self._jobs or now - self._listed_at > CACHE_S:
            self._jobs = await self._context.db.run(store.runnable, self._context.handlers.kinds(), self._hinted)
            self._listed_at = now
        return self._jobs


class OneJob:
    """Takes batches of the one job that was asked for: somebody waits for it, so nobody's turn is counted."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._job: tuple[UUID, str] | None = None

    @property
    def pause_s(self) -> float:
        return self._context.settings.poll_ms / 1000

    def turn_to(self, job_id: UUID, kind: str) -> None:
        self._job = (job_id, kind)

    async def claim(self, lease_id: UUID) -> Lease | None:
        return None if self._job is None else await claim_from(self._context, *self._job, lease_id)


async def claim_from(context: Context, job_id: UUID, kind: str, lease_id: UUID) -> Lease | None:
    """A batch of this job, or None when nothing of it is due, or none of it may begin for a while."""
    handler = context.handlers.get(kind)
    if context.limits.is_closed(handler):
        return None
    wanted = context.claim_size(handler)
    seconds = context.lease_seconds(kind, wanted)
    tries = itertools.count()

    @relaxed
    async def claim(conn: Connection) -> Lease | None:
        return await store.claim(
            conn,
            job_id,
            wanted=wanted,
            lease_id=lease_id,
            lease=seconds,
            worker=context.worker,
            adopt=next(tries) > 0,
            is_shut=context.limits.is_shut,
        )

    lease = await context.db.run(claim)
    if lease is not None:
        tell.claimed(lease)
    return lease
