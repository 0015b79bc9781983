"""The baselines of imports (a bare COPY of the good rows) and of exports (psql's COPY of the same query)."""

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
    """Tables, and a bare COPY into two of them: no validation, no errors per row, no stored items."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._conn = psycopg.connect(self._url, autocommit=True, application_name="tidemill bench")
        for name in ("create_schema", "create_users", "create_articles", "create_payments"):
            self._conn.execute(sql(f"{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def truncate(self, table: str, authors: bytes) -> None:
        """Empty the table; insert the authors that articles refer to."""
        self._conn.execute(sql("empty_users"))
        if table == "articles":
            self.copy("users", [authors])
        self._conn.execute(sql("checkpoint"))

    def fill_payments(self, n: int) -> None:
        """Insert two thirds of the payments of a file, with other values."""
        self._conn.execute(sql("empty_users"))
        self._conn.execute(sql("fill_payments"), {"n": n})
        self._conn.execute(sql("checkpoint"))

    def copy(self, table: str, pieces: Iterable[bytes]) -> float:
        """Write the rows with one COPY; return the seconds, including the commit."""
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
    """Runs psql's COPY of a table that does not change."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._psql = _find_psql()

    @classmethod
    async def create(cls, db: Database, rows: int) -> Self:
        """Create the table with ``rows`` users; return the runner."""
        made = cls(db.url)
        async with db.transaction(bounded=False) as conn:
            for name in ("create_schema", "create_users"):
                await conn.execute(sql(f"{name}"))
            await conn.execute(sql("fill_users"), {"n": rows})
        async with db.connection() as conn:
            await conn.execute(sql("vacuum_users"), prepare=False)
        return made

    def copy(self, query: str, feed: CopyFormat, into: Path | None) -> float:
        """Copy a query to a file, or to a pipe that this process reads; return the seconds."""
        started = time.monotonic()
        if into is None:
            code = self._run_psql(query, feed, subprocess.PIPE)
        else:
            with into.open("wb") as file:
                code = self._run_psql(query, feed, file)
        if code:
            raise TidemillError(f"psql exited with code {code}. Its error message is above.")
        return time.monotonic() - started

    def _run_psql(self, query: str, feed: CopyFormat, output: int | IO[bytes]) -> int:
        copy = f"COPY ({query}) TO STDOUT {_COPY_OPTIONS[feed]}"
        argv = [self._psql, "--no-psqlrc", "--quiet", "--dbname", self._url, "--command", "SET timezone = 'UTC'"]
        with subprocess.Popen([*argv, "--command", copy], stdout=output, bufsize=0) as process:
            if process.stdout is not None:
                buffer = memoryview(bytearray(PSQL_READ_CHUNK_BYTES))
                while process.stdout.readinto(buffer):  # type: ignore[attr-defined]
                    pass
        return process.returncode


def _find_psql() -> str:
    found = shutil.which("psql", path=str(embedded_postgres.find_programs_folder())) or shutil.which("psql")
    if found is None:
        raise InvalidInput("This benchmark needs psql. Install the PostgreSQL client programs")
    return found
