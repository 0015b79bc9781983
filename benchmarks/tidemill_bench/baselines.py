"""The bare work that imports are compared with.

The bare work that exports are compared with: psql's COPY of the same query.
"""

import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Self

import psycopg

from tidemill.core.errors import InvalidInput, TidemillError
from tidemill.core.file_format import CopyFormat
from tidemill.store import embedded_postgres
from tidemill.store.database import Connection, Database
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill_bench")


class BareImportTables:
    """Two tables, and one COPY into either: no check, no error, nothing stored first."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._conn = psycopg.connect(self._url, autocommit=True, application_name="tidemill bench")
        for name in ("create_schema", "create_users", "create_articles"):
            self._conn.execute(sql(f"{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def truncate(self, table: str, authors: bytes) -> None:
        """Empty it; articles find their authors."""
        self._conn.execute(sql("empty_users"))
        if table == "articles":
            self.copy("users", [authors])
        self._conn.execute(sql("checkpoint"))

    def copy(self, table: str, pieces: Iterable[bytes]) -> float:
        """The seconds it took, commit included."""
        started = time.monotonic()
        with self._conn.cursor() as cursor, cursor.copy(sql(f"copy_{table}")) as copy:
            for piece in pieces:
                copy.write(piece)
        return time.monotonic() - started


async def count_rows(conn: Connection, table: str) -> int:
    cursor = await conn.execute(sql(f"count_{table}"))
    row = await cursor.fetchone()
    return 0 if row is None else int(row[0])


BENCH_USERS_TABLE = "tidemill_bench.users"
PSQL_READ_CHUNK_BYTES = 1 << 18
_COPY_OPTIONS: dict[CopyFormat, str] = {"csv": "(FORMAT csv, HEADER)", "ndjson": ""}


class PsqlCopy:
    """psql, which copies a table out that stays as it is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._psql = _find_psql()

    @classmethod
    async def create(cls, db: Database, rows: int) -> Self:
        """With that table, of so many users."""
        made = cls(db.url)
        async with db.transaction(bounded=False) as conn:
            for name in ("create_schema", "create_users"):
                await conn.execute(sql(f"{name}"))
            await conn.execute(sql("fill_users"), {"n": rows})
        async with db.connection() as conn:
            await conn.execute(sql("vacuum_users"), prepare=False)
        return made

    def copy(self, query: str, feed: CopyFormat, into: Path | None) -> float:
        """Into a file, or into a pipe out of which somebody takes it; the seconds."""
        started = time.monotonic()
        if into is None:
            code = self._run_psql(query, feed, subprocess.PIPE)
        else:
            with into.open("wb") as file:
                code = self._run_psql(query, feed, file)
        if code:
            raise TidemillError(f"psql ended with exit code {code}; its message is above")
        return time.monotonic() - started

    def _run_psql(self, query: str, feed: CopyFormat, output: int | IO[bytes]) -> int:
        copy = f"COPY ({query}) TO STDOUT {_COPY_OPTIONS[feed]}"
        argv = [self._psql, "--no-psqlrc", "--quiet", "--dbname", self._url, "--command", "SET timezone = 'UTC'"]
        with subprocess.Popen([*argv, "--command", copy], stdout=output, bufsize=0) as process:
            if process.stdout is not None:
                room = memoryview(bytearray(PSQL_READ_CHUNK_BYTES))
                while process.stdout.readinto(room):  # type: ignore[attr-defined]
                    pass
        return process.returncode


def _find_psql() -> str:
    found = shutil.which("psql", path=str(embedded_postgres.find_programs_folder())) or shutil.which("psql")
    if found is None:
        raise InvalidInput("psql is needed to compare with, and is not there")
    return found
