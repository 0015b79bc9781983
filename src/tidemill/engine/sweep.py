"""Maintenance: what one worker at a time does for all."""

import contextlib
import math
import time

from tidemill.domain.errors import UnknownJob
from tidemill.engine.finalize import finalize, police
from tidemill.engine.observe import Observer
from tidemill.engine.service import Service
from tidemill.store import (
    delete,
    jobs,
    leases,
    limiters,
    maintain,
    outbox,
    partitions,
    quarantine,
    sessions,
    watch_files,
    workers,
)
from tidemill.store.about import about
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

EVERY_S = 1.0
DUTY_S = 10.0
FOLD_EVERY_S = 5.0
FOLD_LEAST = 200
HOUSEKEEPING_EVERY_S = 300.0
RESEND_AFTER_S = 60.0


class Maintenance(Service):
    """Sweeps expired leases, cancels what is condemned, closes what is drained, folds, samples, makes partitions."""

    name = "maintenance"

    def __init__(
        self, db: Database, worker: str, *, every_s: float = EVERY_S, resend_after_s: float = RESEND_AFTER_S
    ) -> None:
        super().__init__()
        self._resend_after_s = resend_after_s
        self._every_s = every_s
        self._db = db
        self._worker = worker
        self._folded_at = self._housekept_at = float("-inf")
        self._resent_at = time.monotonic()
        self._observer = Observer(db)

    async def tick(self) -> float:
        if not await self._db.run(maintain.take_duty, self.name, self._worker, DUTY_S):
            return self._every_s
        await self.sweep()
        await self.close_jobs()
        now = time.monotonic()
        if now - self._folded_at > FOLD_EVERY_S:
            await self.fold(FOLD_LEAST)
            self._folded_at = now
        await self._observer.observe(now)
        if now - self._resent_at > self._resend_after_s:
            await self.resend(now - self._resent_at)
            self._resent_at = now
        if now - self._housekept_at > HOUSEKEEPING_EVERY_S:
            await self._observer.thin()
            await self._db.run(partitions.make_ahead)
            await self._db.run(workers.forget_silent)
            await self._db.run(sessions.forget_expired)
            await self._db.run(outbox.forget)
            await self._db.run(quarantine.thin)
            await self._db.run(limiters.forget_idle)
            await self._db.run(watch_files.forget)
            self._housekept_at = now
        return 0 if await self.remove_deleted() else self._every_s

    async def sweep(self) -> int:
        """Take back leases that ran out."""
        await self._db.run(leases.end_stuck_copies, 2 * self._db.timeout_ms / 1000)
        swept = await self._db.run(leases.sweep)
        for batch_id, job_id, losses in swept:
            async with about(self._db, job_id):
                emit("batch.swept", job=job_id, batch=batch_id, losses=losses)
        return len(swept)

    async def close_jobs(self) -> None:
        """Fail, cancel and close, in that order."""
        for job_id in await self._db.run(jobs.to_police):
            await police(self._db, job_id)
        while await self._db.run(maintain.cancel_condemned):
            pass
        for job_id in await self._db.run(jobs.drained_candidates):
            await finalize(self._db, job_id)

    async def resend(self, window: float = math.inf) -> None:
        """Jobs that nobody has looked at for too long get another hint: theirs was lost."""
        resent = await self._db.run(outbox.resend, self._resend_after_s, window)
        if resent:
            emit("hints.resent", jobs=len(resent))

    async def fold(self, least: int) -> None:
        for job_id in await self._db.run(maintain.to_fold, least):
            with contextlib.suppress(UnknownJob):  # deleted meanwhile
                await self._db.run(maintain.fold, job_id)

    async def remove_deleted(self) -> int:
        """A chunk of the rows of deleted jobs; how many were removed."""
        removed = 0
        for job_id in await self._db.run(delete.pending_removals):
            removed += await self._db.run(delete.remove_rows, job_id)
        return removed
