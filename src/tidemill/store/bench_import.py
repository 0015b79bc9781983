"""The bare work that imports are compared with."""

import time
from collections.abc import Iterable
from typing import Self

import psycopg

from tidemill.store.database import Connection
from tidemill.store.statements import sql


class BareTable:
    """Two tables, and one COPY into either: no check, no error, nothing stored first."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._conn = psycopg.connect(self._url, autocommit=True, application_name="tidemill bench")
        for name in ("create_schema", "create_users", "create_articles"):
            self._conn.execute(sql(f"bench/{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def empty(self, table: str, authors: bytes) -> None:
        """Empty it; articles find their authors."""
        self._conn.execute(sql("bench/empty_users"))
        if table == "articles":
            self.copy("users", [authors])
        self._conn.execute(sql("bench/checkpoint"))

    def copy(self, table: str, pieces: Iterable[bytes]) -> float:
        """The seconds it took, commit included."""
        started = time.monotonic()
        with self._conn.cursor() as cursor, cursor.copy(sql(f"bench/copy_{table}")) as copy:
            for piece in pieces:
                copy.write(piece)
        return time.monotonic() - started


async def count(conn: Connection, table: str) -> int:
    cursor = await conn.execute(sql(f"bench/count_{table}"))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])
