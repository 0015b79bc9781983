"""The wake-up line: LISTEN on a connection of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from uuid import UUID

from psycopg import AsyncConnection

from tidemill.store.database import Connection
from tidemill.store.statements import sql


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Connection]:
    conn = await AsyncConnection.connect(url, autocommit=True, connect_timeout=10, application_name="tidemill listen")
    try:
        await conn.execute(b"LISTEN tidemill")
        yield conn
    finally:
        await conn.close()


async def hints(conn: Connection, seconds: float) -> list[str]:
    """The job ids announced within so many seconds, at the first of them.

    Without one, a ping: a line that broke without a word is noticed.
    """
    found = [notify.payload async for notify in conn.notifies(timeout=seconds, stop_after=1)]
    if not found:
        await conn.execute(b"SELECT 1")
    return found


async def announce_all(conn: Connection, job_ids: Sequence[UUID]) -> None:
    """Say to everybody who listens that these jobs have work."""
    await conn.execute(sql("outbox/announce_all"), {"job_ids": list(job_ids)})
