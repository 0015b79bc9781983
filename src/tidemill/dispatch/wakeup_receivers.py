"""What a worker does with what it hears: ``JobHandler``s."""

import asyncio
import time
from collections.abc import Callable
from uuid import UUID

from tidemill.core.decide import describe_exception
from tidemill.dispatch import outbox
from tidemill.dispatch import outbox as quarantine
from tidemill.store.database import Database
from tidemill.telemetry.events import emit

IDLE_LANE_POLL_S = 0.05
QUARANTINE_TRIM_EVERY_MESSAGES = (
    1_000  # messages that are none: a stranger may send more than there is room for until somebody cleans up
)
MAX_HINT_HOLD_S = 60.0  # brokers wonder about a message that is kept for longer


class NotificationReceiver:
    """Of the database, which everybody hears: for the relay, and for the children while no broker brings hints."""

    def __init__(
        self, wake_all: Callable[[], None], wake_relay: Callable[[], None], is_only_source: Callable[[], bool]
    ) -> None:
        self._wake_all = wake_all
        self._wake_relay = wake_relay
        self._is_only_source = is_only_source

    async def wake_after_reconnect(self) -> None:
        self._wake_all()
        self._wake_relay()

    async def wait_until_idle(self) -> None:
        """At any time: nothing is taken from anybody."""

    async def handle(self, job_id: UUID) -> None:  # noqa: ARG002  everybody looks for himself, and chooses fairly
        self._wake_relay()
        if self._is_only_source():
            self._wake_all()

    async def refuse(self, message: bytes, reason: str) -> None:
        """There is nothing in a notification that could be wrong."""


class HintReceiver:
    """Of a broker, each for one worker: one child of ours is told which job it should look at first."""

    def __init__(
        self,
        db: Database,
        worker: str,
        *,
        wake: Callable[[UUID], None],
        wake_all: Callable[[], None],
        has_idle_lane: Callable[[], bool],
    ) -> None:
        self._db = db
        self._worker = worker
        self._wake = wake
        self._wake_all = wake_all
        self._has_idle_lane = has_idle_lane
        self._quarantined_total = 0

    async def wake_after_reconnect(self) -> None:
        self._wake_all()

    async def wait_until_idle(self) -> None:
        until = time.monotonic() + MAX_HINT_HOLD_S
        while not self._has_idle_lane() and time.monotonic() < until:  # noqa: ASYNC110  children are other processes: who would set an event
            await asyncio.sleep(IDLE_LANE_POLL_S)

    async def handle(self, job_id: UUID) -> None:
        wanted = await self._db.read(outbox.is_job_running, job_id)
        if wanted:
            self._wake(job_id)
        emit("hint.heard" if wanted else "hint.dropped", job=job_id)

    async def refuse(self, message: bytes, reason: str) -> None:
        """A message that cannot even be kept is told of, and gone: it would come back at once, and for ever."""
        try:
            await self._db.run(quarantine.quarantine_message, self._worker, message, reason)
            self._quarantined_total += 1
            if self._quarantined_total % QUARANTINE_TRIM_EVERY_MESSAGES == 0:
                await self._db.run(quarantine.trim_quarantine)
        except Exception as error:  # noqa: BLE001  whatever it is, the next message is waiting
            emit("loop.failed", loop="quarantine", error=describe_exception(error))
        emit("hint.quarantined", job=None, reason=reason, bytes=len(message))
