"""Wakes workers with LISTEN/NOTIFY and hints of a broker. A lost wake-up costs latency only: workers also poll."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from psycopg import AsyncConnection

from tidemill.core.decide import describe_exception
from tidemill.dispatch import outbox
from tidemill.dispatch import outbox as quarantine
from tidemill.dispatch.envelope import Envelope, WakeupReceiver
from tidemill.store.database import Connection, Database
from tidemill.store.statements import make_sql_loader
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

    async def wait_for_idle_lane(self) -> None:
        """At any time: nothing is taken from anybody."""

    async def wake_for_job(self, job_id: UUID) -> None:  # noqa: ARG002  everybody looks for himself, and chooses fairly
        self._wake_relay()
        if self._is_only_source():
            self._wake_all()

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
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

    async def wait_for_idle_lane(self) -> None:
        until = time.monotonic() + MAX_HINT_HOLD_S
        while not self._has_idle_lane() and time.monotonic() < until:  # noqa: ASYNC110  children are other processes: who would set an event
            await asyncio.sleep(IDLE_LANE_POLL_S)

    async def wake_for_job(self, job_id: UUID) -> None:
        wanted = await self._db.read(outbox.is_job_runnable, job_id)
        if wanted:
            self._wake(job_id)
        emit("hint.heard" if wanted else "hint.dropped", job=job_id)

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """A message that cannot even be kept is told of, and gone: it would come back at once, and for ever."""
        try:
            await self._db.run(quarantine.quarantine_message, self._worker, message, reason)
            self._quarantined_total += 1
            if self._quarantined_total % QUARANTINE_TRIM_EVERY_MESSAGES == 0:
                await self._db.run(quarantine.delete_oldest_quarantined)
        except Exception as error:  # noqa: BLE001  whatever it is, the next message is waiting
            emit("loop.failed", loop="quarantine", error=describe_exception(error))
        emit("hint.quarantined", job=None, reason=reason, bytes=len(message))


sql = make_sql_loader("tidemill.dispatch")

LISTEN_TIMEOUT_S = 10.0
LISTEN_RECONNECT_DELAY_S = 1.0


class PostgresDispatcher:
    """The ``JobDispatcher`` that needs nothing but the database. Everybody who listens hears everything."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        await self._db.run(notify_jobs, [envelope.job_id for envelope in envelopes])
        return [None] * len(envelopes)

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        while True:
            try:
                async with open_listen_connection(self._db.url) as line:
                    await handler.wake_after_reconnect()
                    while True:
                        for payload in await wait_for_notifications(line, LISTEN_TIMEOUT_S):
                            await _deliver_payload(payload, handler)
            except Exception as error:  # noqa: BLE001  whatever broke the line, polling goes on and we try again
                emit("listen.lost", error=str(error).strip())
                await asyncio.sleep(LISTEN_RECONNECT_DELAY_S)

    async def close(self) -> None:
        """Nothing is kept open between two calls."""


async def _deliver_payload(payload: str, handler: WakeupReceiver) -> None:
    with contextlib.suppress(ValueError):  # anybody who may connect may notify
        await handler.wake_for_job(UUID(payload))


@asynccontextmanager
async def open_listen_connection(url: str) -> AsyncIterator[Connection]:
    conn = await AsyncConnection.connect(url, autocommit=True, connect_timeout=10, application_name="tidemill listen")
    try:
        await conn.execute(b"LISTEN tidemill")
        yield conn
    finally:
        await conn.close()


async def wait_for_notifications(conn: Connection, seconds: float) -> list[str]:
    """The job ids announced within so many seconds, at the first of them.

    Without one, a ping: a line that broke without a word is noticed.
    """
    found = [notify.payload async for notify in conn.notifies(timeout=seconds, stop_after=1)]
    if not found:
        await conn.execute(b"SELECT 1")
    return found


async def notify_jobs(conn: Connection, job_ids: Sequence[UUID]) -> None:
    """Say to everybody who listens that these jobs have work."""
    await conn.execute(sql("outbox/announce_all"), {"job_ids": list(job_ids)})
