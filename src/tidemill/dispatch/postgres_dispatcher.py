"""Wake-ups by LISTEN/NOTIFY. Losing one, or the line, costs only latency: polling is the truth.

The wake-up line: LISTEN on a connection of its own.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from psycopg import AsyncConnection

from tidemill.dispatch.envelope import Envelope, WakeupReceiver
from tidemill.store.database import Connection, Database
from tidemill.store.statements import load_sql
from tidemill.telemetry.events import emit

sql = load_sql("tidemill.dispatch")

LISTEN_TIMEOUT_S = 10.0
LISTEN_RECONNECT_DELAY_S = 1.0


class PostgresDispatcher:
    """The ``JobDispatcher`` that needs nothing but the database. Everybody who listens hears everything."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def dispatch(self, envelopes: Sequence[Envelope]) -> list[str | None]:
        await self._db.run(notify_jobs, [envelope.job_id for envelope in envelopes])
        return [None] * len(envelopes)

    async def deliver(self, handler: WakeupReceiver) -> None:
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
        await handler.handle(UUID(payload))


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
