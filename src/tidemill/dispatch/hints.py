"""What a worker does with what it hears: ``JobHandler``s."""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from tidemill.domain.decide import describe
from tidemill.store import outbox, quarantine
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

LOOK_S = 0.05
THIN_EVERY = 1_000  # messages that are none: a stranger may send more than there is room for until somebody cleans up
HOLD_S = 60.0  # brokers wonder about a message that is kept for longer


class Announcements:
    """Of the database, which everybody hears: for the relay, and for the children while no broker brings hints."""

    def __init__(self, wake_all: Callable[[], None], wake_relay: Callable[[], None], alone: Callable[[], bool]) -> None:
        self._wake_all = wake_all
        self._wake_relay = wake_relay
        self._alone = alone

    async def missed(self) -> None:
        self._wake_all()
        self._wake_relay()

    async def ready(self) -> None:
        """At any time: nothing is taken from anybody."""

    async def handle(self, job_id: UUID) -> None:  # noqa: ARG002  everybody looks for himself, and chooses fairly
        self._wake_relay()
        if self._alone():
            self._wake_all()

    async def refuse(self, message: bytes, reason: str) -> None:
        """There is nothing in a notification that could be wrong."""


class Hints:
    """Of a broker, each for one worker: one child of ours is told which job it should look at first."""

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        wake: Callable[[UUID], None],
        wake_all: Callable[[], None],
        has_time: Callable[[], bool],
    ) -> None:
        self._db = db
        self._worker = worker
        self._wake = wake
        self._wake_all = wake_all
        self._has_time = has_time
        self._refused = 0

    async def missed(self) -> None:
        self._wake_all()

    async def ready(self) -> None:
        until = time.monotonic() + HOLD_S
        while not self._has_time() and time.monotonic() < until:  # noqa: ASYNC110  children are other processes: who would set an event
            await asyncio.sleep(LOOK_S)

    async def handle(self, job_id: UUID) -> None:
        wanted = await self._db.run(outbox.is_to_run, job_id)
        if wanted:
            self._wake(job_id)
        emit("hint.heard" if wanted else "hint.dropped", job=job_id)

    async def refuse(self, message: bytes, reason: str) -> None:
        """A message that cannot even be kept is told of, and gone: it would come back at once, and for ever."""
        try:
            await self._db.run(quarantine.add, self._worker, message, reason)
            self._refused += 1
            if self._refused % THIN_EVERY == 0:
                await self._db.run(quarantine.thin)
        except Exception as error:  # noqa: BLE001  whatever it is, the next message is waiting
            emit("loop.failed", loop="quarantine", error=describe(error))
        emit("hint.quarantined", job=None, reason=reason, bytes=len(message))
