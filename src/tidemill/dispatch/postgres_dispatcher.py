"""Wakes workers by LISTEN/NOTIFY and by hints of a broker. A lost wake-up only increases latency: workers also poll."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol
from uuid import UUID

from psycopg import AsyncConnection

from tidemill.core.decide import describe_exception
from tidemill.dispatch import outbox, quarantine
from tidemill.dispatch.envelope import Envelope
from tidemill.failpoints import register_connection
from tidemill.store.database import Connection, Database, break_connection
from tidemill.store.statements import make_sql_loader
from tidemill.telemetry.events import emit


class WakeupReceiver(Protocol):
    """Handles hints in a worker."""

    async def wake_after_reconnect(self) -> None:
        """Wake all children after a reconnect, because hints may have been missed."""

    async def wait_for_idle_lane(self) -> None:
        """Wait until a lane is idle, so that a busy worker leaves hints to other workers."""

    async def wake_for_job(self, job_id: UUID) -> None:
        """Handle a hint that this job has work."""

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Store a message that is not a valid hint, for inspection."""


class WakeupDispatcher(Protocol):
    """Sends and receives hints that jobs have work. A lost or repeated hint only affects latency."""

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        """Send hints together; return for each None, or why the broker rejected it.

        Raises:
            BrokerUnavailable: The broker does not respond.
        """

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        """Pass received hints to the handler until cancelled; reconnect if the connection breaks."""

    async def close(self) -> None: ...


IDLE_LANE_POLL_S = 0.05
QUARANTINE_TRIM_EVERY_MESSAGES = 1_000  # invalid messages may arrive faster than maintenance deletes them
MAX_HINT_HOLD_S = 60.0  # brokers redeliver a message that is not acknowledged for longer


class NotificationReceiver:
    """Receives notifications of the database, which reach every worker.

    They wake the relay and, while no broker delivers hints, the children.
    """

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
        """Return at once: a notification reaches all workers, so none is taken from another worker."""

    async def wake_for_job(self, job_id: UUID) -> None:  # noqa: ARG002  every child chooses a job fairly
        self._wake_relay()
        if self._is_only_source():
            self._wake_all()

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Do nothing: invalid notifications are ignored."""


class HintReceiver:
    """Receives hints of a broker, each for one worker, and passes the job to one child."""

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
        while not self._has_idle_lane() and time.monotonic() < until:  # noqa: ASYNC110  children are other processes and cannot set an event
            await asyncio.sleep(IDLE_LANE_POLL_S)

    async def wake_for_job(self, job_id: UUID) -> None:
        is_runnable = await self._db.read(outbox.can_job_use_hint, job_id)
        if is_runnable:
            self._wake(job_id)
        emit("hint.heard" if is_runnable else "hint.dropped", job=job_id)

    async def quarantine_invalid_message(self, message: bytes, reason: str) -> None:
        """Quarantine a message. If that fails, only report it: otherwise the broker would redeliver it forever."""
        try:
            await self._db.run(quarantine.quarantine_message, self._worker, message, reason)
            self._quarantined_total += 1
            if self._quarantined_total % QUARANTINE_TRIM_EVERY_MESSAGES == 0:
                await self._db.run(quarantine.delete_surplus_quarantined)
        except Exception as error:  # noqa: BLE001  continue with the next message
            emit("loop.failed", loop="quarantine", error=describe_exception(error))
        emit("hint.quarantined", job=None, reason=reason, bytes=len(message))


sql = make_sql_loader("tidemill.dispatch")

LISTEN_TIMEOUT_S = 10.0
LISTEN_RECONNECT_DELAY_S = 1.0


class PostgresDispatcher:
    """A ``WakeupDispatcher`` that needs only the database. Every listener gets every notification."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        await self._db.run(notify_listeners, [envelope.job_id for envelope in envelopes])
        return [None] * len(envelopes)

    async def receive_wakeups(self, handler: WakeupReceiver) -> None:
        while True:
            try:
                async with open_listen_connection(self._db.url) as connection:
                    await handler.wake_after_reconnect()
                    while True:
                        for payload in await wait_for_notifications(connection, LISTEN_TIMEOUT_S):
                            await _wake_for_notification(payload, handler)
            except Exception as error:  # noqa: BLE001  workers poll in the meantime, and this loop reconnects
                emit("listen.lost", error=str(error).strip())
                await asyncio.sleep(LISTEN_RECONNECT_DELAY_S)

    async def close(self) -> None:
        """Do nothing: no connection stays open between calls."""


async def _wake_for_notification(payload: str, handler: WakeupReceiver) -> None:
    with contextlib.suppress(ValueError):  # any database user may send notifications
        await handler.wake_for_job(UUID(payload))


@asynccontextmanager
async def open_listen_connection(url: str) -> AsyncIterator[Connection]:
    conn = await AsyncConnection.connect(url, autocommit=True, connect_timeout=10, application_name="tidemill listen")
    register_connection(conn, break_connection)
    try:
        await conn.execute(b"LISTEN tidemill")
        yield conn
    finally:
        await conn.close()


async def wait_for_notifications(conn: Connection, seconds: float) -> list[str]:
    """Wait up to ``seconds`` for a notification; return the job IDs that arrived with it.

    If none arrives, run a query, which detects a broken connection.
    """
    payloads = [notify.payload async for notify in conn.notifies(timeout=seconds, stop_after=1)]
    if not payloads:
        await conn.execute(b"SELECT 1")
    return payloads


async def notify_listeners(conn: Connection, job_ids: Sequence[UUID]) -> None:
    """Notify all listeners that these jobs have work."""
    await conn.execute(sql("outbox/announce_all"), {"job_ids": list(job_ids)})
