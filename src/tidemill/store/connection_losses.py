"""Detects whether a transaction itself made the server end its connection.

A row can do that: its trigger terminates or crashes the server process of the connection. A restart of the server, or
the crash of another server process, also ends connections, but says nothing about the rows of a transaction.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime

import psycopg

from tidemill.store.database import Connection, Database
from tidemill.store.statements import sql

CRASH_SHUTDOWN_STATE = "57P02"  # another server process crashed
# The function of the server that ends a connection after a crash of another process or in an immediate shutdown. Its
# message is a warning. A trigger can raise a warning with the same SQLSTATE, but not from this function.
QUICK_EXIT_FUNCTION = "quickdie"


class ConnectionLossDetector:
    """Observes the connection of one transaction."""

    def __init__(self) -> None:
        self.server_started_at: datetime | None = None  # set it before the transaction processes a user's data
        self._conn: Connection | None = None
        self._was_server_stopping = False

    @property
    def is_lost(self) -> bool:
        return self._conn is not None and self._conn.closed

    @asynccontextmanager
    async def observe_connection(self, conn: Connection) -> AsyncIterator[None]:
        """Observe the connection, also in the COMMIT after this context, until ``close``."""
        self._conn = conn
        conn.add_notice_handler(self._record_notice)
        try:
            yield
        except Exception as error:
            # The message of a terminated connection arrives before its end, so use the connection once more.
            with suppress(psycopg.Error):
                await conn.rollback()
            with suppress(psycopg.Error):
                conn.pgconn.is_busy()  # parses the server's last messages, which may be warnings
            if isinstance(error, psycopg.Error) and error.sqlstate == CRASH_SHUTDOWN_STATE and conn.closed:
                self._was_server_stopping = True
            raise

    def close(self) -> None:
        if self._conn is not None:
            self._conn.remove_notice_handler(self._record_notice)

    async def is_caused_by_transaction(self, db: Database) -> bool:
        """Return whether the transaction lost its connection while it processed data and the server kept running."""
        if not self.is_lost or self.server_started_at is None or self._was_server_stopping:
            return False
        return await db.read(read_server_start) == self.server_started_at

    def _record_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == QUICK_EXIT_FUNCTION:
            self._was_server_stopping = True


async def read_server_start(conn: Connection) -> datetime:
    cursor = await conn.execute(sql("server/started_at"))
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  one SELECT without FROM
    return row[0]  # type: ignore[no-any-return]


def describe_loss(error: Exception) -> str:
    """Return the reason of a lost connection in one line, without the row that the server may quote after it."""
    message = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return message or next(iter(str(error).strip().splitlines()), type(error).__name__)
