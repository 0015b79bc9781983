"""A slice of a job for somebody who waits: asked of a free child, watched until it is over, and summed up."""

import asyncio
import time
from uuid import UUID

from tidemill.domain.errors import Busy, Unavailable
from tidemill.domain.ports import Handlers
from tidemill.domain.slice import Slice
from tidemill.engine.finalize import after_batch
from tidemill.engine.hand import OVERDUE_S, Hand
from tidemill.engine.supervise import GIVE_UP_S, Supervisor
from tidemill.store.about import about
from tidemill.store.database import Database
from tidemill.store.outlook import Outlook, outlook
from tidemill.telemetry.events import emit

FREE_WITHIN_S = 2.0
STARTED_WITHIN_S = 15.0  # a child that starts, or is started again, is worth waiting for
LOOK_S = 0.02
ANSWER_S = 5.0


class Kickoff:
    """Slices in the children of one supervisor."""

    def __init__(self, db: Database, handlers: Handlers, supervisor: Supervisor, *, grace: float) -> None:
        self._db = db
        self._handlers = handlers
        self._supervisor = supervisor
        self._grace = grace

    async def run(self, job_id: UUID, kind: str, seconds: float) -> Slice:
        """One slice. Whoever is cancelled while waiting ends it at once: what is not finished goes back."""
        self._handlers.get(kind)
        hand = await self._begin(job_id, kind, seconds)
        started = time.monotonic()
        try:
            await self._over(hand, started + seconds + self._grace + OVERDUE_S + GIVE_UP_S)
        finally:
            hand.end_slice(self._grace)
        did, elapsed, died = hand.did(), time.monotonic() - started, not hand.is_idle
        async with about(self._db, job_id):
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
        left = await self._outlook(job_id)
        return Slice(
            settled=did["settled"],
            failed=did["failed"],
            retried=did["retried"],
            seconds=elapsed,
            is_drained=not left.is_open,
            next_due_at=left.next_due_at,
            due_in=left.due_in,
            child_died=died,
        )

    async def _begin(self, job_id: UUID, kind: str, seconds: float) -> Hand:
        """The first child that is free and takes it; one may have died since its parent last looked."""
        supervisor, waiting_since = self._supervisor, time.monotonic()
        while True:
            hand = supervisor.free_hand()
            if hand is not None and hand.begin_slice(job_id, kind, seconds, self._grace):
                return hand
            if supervisor.failure is not None:
                raise supervisor.failure
            if time.monotonic() - waiting_since > (STARTED_WITHIN_S if supervisor.is_starting else FREE_WITHIN_S):
                raise Busy("every child process is busy; try again soon")
            await asyncio.sleep(LOOK_S)

    async def _over(self, hand: Hand, deadline: float) -> None:
        """Until the child says so, or is dead and buried; its parent sees to it that one of the two happens."""
        while not hand.is_idle and self._supervisor.has(hand) and time.monotonic() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)  # the logbook is memory of another process: it has no event to wait for

    async def _outlook(self, job_id: UUID) -> Outlook:
        try:
            async with asyncio.timeout(ANSWER_S):
                await after_batch(self._db, job_id, failed=0)  # a source without a record has no batch to close it
                return await self._db.run(outlook, job_id)
        except TimeoutError as error:
            raise Unavailable("the database does not answer") from error
