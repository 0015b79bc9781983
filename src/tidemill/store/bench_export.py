"""The bare work that exports are compared with: psql's COPY of the same query."""

import shutil
import subprocess
import time
from pathlib import Path
from typing import IO, Self

from tidemill.domain.errors import InvalidInput, TidemillError
from tidemill.domain.form import Feed
from tidemill.store import embedded
from tidemill.store.database import Database
from tidemill.store.statements import sql

TABLE = "tidemill_bench.users"
PIECE = 1 << 18
_OPTIONS: dict[Feed, str] = {"csv": "(FORMAT csv, HEADER)", "ndjson": ""}


class BareCopy:
    """psql, which copies a table out that stays as it is."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._psql = _psql()

    @classmethod
    async def make(cls, db: Database, rows: int) -> Self:
        """With that table, of so many users."""
        made = cls(db.url)
        async with db.transaction(bounded=False) as conn:
            for name in ("create_schema", "create_users"):
                await conn.execute(sql(f"bench/{name}"))
            await conn.execute(sql("bench/fill_users"), {"n": rows})
        async with db.connection() as conn:
            await conn.execute(sql("bench/vacuum_users"), prepare=False)
        return made

    def copy(self, query: str, feed: Feed, into: Path | None) -> float:
        """Into a file, or into a pipe out of which somebody takes it; the seconds."""
        started = time.monotonic()
        if into is None:
            code = self._run(query, feed, subprocess.PIPE)
        else:
            with into.open("wb") as file:
                code = self._run(query, feed, file)
        if code:
            raise TidemillError(f"psql ended with exit code {code}; its message is above")
        return time.monotonic() - started

    def _run(self, query: str, feed: Feed, output: int | IO[bytes]) -> int:
        copy = f"COPY ({query}) TO STDOUT {_OPTIONS[feed]}"
        argv = [self._psql, "--no-psqlrc", "--quiet", "--dbname", self._url, "--command", "SET timezone = 'UTC'"]
        with subprocess.Popen([*argv, "--command", copy], stdout=output, bufsize=0) as process:  # noqa: S603  our argv
            if process.stdout is not None:
                room = memoryview(bytearray(PIECE))
                while process.stdout.readinto(room):  # type: ignore[attr-defined]
                    pass
        return process.returncode


def _psql() -> str:
    found = shutil.which("psql", path=str(embedded.programs())) or shutil.which("psql")
    if found is None:
        raise InvalidInput("psql is needed to compare with, and is not there")
    return found
