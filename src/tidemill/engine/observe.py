"""Looking at all jobs every few seconds: samples for their charts, and how much waits."""

from uuid import UUID

from tidemill.domain.progress import EVERY
from tidemill.engine.service import Service
from tidemill.store import outbox, queue, samples
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

SAMPLE_EVERY_S = EVERY.total_seconds()
DEPTH_EVERY_S = 10.0


class Observer:
    """Part of maintenance, so that one worker does it for all.

    Only jobs that are being worked on, or were at the last look, are sampled: thousands that wait cost nothing.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._sampled_at = self._measured_at = float("-inf")
        self._turning: set[UUID] = set()
        self._sampled: set[UUID] = set()

    async def observe(self, now: float) -> None:
        """What is due at ``now``, a monotonic time."""
        if now - self._sampled_at >= SAMPLE_EVERY_S:
            self._sampled_at = now
            await self.sample()
        if now - self._measured_at >= DEPTH_EVERY_S:
            self._measured_at = now
            await measure_queue(self._db)

    async def sample(self) -> None:
        turning = await self._db.run(samples.turning)
        candidates = turning | self._turning
        if candidates:
            self._sampled.update(await self._db.run(samples.add, sorted(candidates)))
        self._turning = turning

    async def thin(self) -> int:
        """Those that were sampled since the last time have not too many samples any more; how many went."""
        sampled, self._sampled = self._sampled, set()
        return await self._db.run(samples.thin, sorted(sampled)) if sampled else 0


class QueueWatch(Service):
    """For a process without maintenance that shows metrics: the depth of the queue, every few seconds."""

    name = "queue"

    def __init__(self, db: Database) -> None:
        super().__init__()
        self._db = db

    async def tick(self) -> float:
        await measure_queue(self._db)
        return DEPTH_EVERY_S


async def measure_queue(db: Database) -> queue.Depth:
    """Sum what is open, and tell."""
    depth = await db.run(queue.depth)
    emit(
        "queue.sampled",
        pending=depth.pending,
        processing=depth.processing,
        retry_wait=depth.retry_wait,
        oldest_s=round(depth.oldest_s, 1),
    )
    backlog = await db.run(outbox.sample)
    emit(
        "outbox.sampled",
        depth=backlog.depth,
        oldest_s=round(backlog.oldest_s, 1),
        quarantined=backlog.quarantined,
    )
    return depth
