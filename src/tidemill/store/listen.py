"""The wake-up line: LISTEN on a connection of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from psycopg import AsyncConnection

from tidemill.store.database import Connection


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
