"""Database access of the benchmarks: the baseline of the items benchmark, counters of the server, and cleanup."""

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg.types.json import set_json_loads

from tidemill.store import embedded_postgres, retention
from tidemill.store.database import Connection, Database
from tidemill.store.jsonb import decode_json
from tidemill.store.statements import make_sql_loader

sql = make_sql_loader("tidemill_bench")


@contextmanager
def run_durable_server(home: Path) -> Iterator[str]:
    """Run a PostgreSQL with the settings of the embedded one in a temporary folder; yield its URL."""
    home.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=home))
    try:
        server = embedded_postgres.prepare_server(folder / "postgres", embedded_postgres.EMBEDDED_SERVER_SETTINGS)
        try:
            server.start()
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class BareItemTables:
    """The baseline for storing and settling rows: one blocking connection, no lease, no handler."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> Self:
        self._conn = psycopg.connect(self._url, autocommit=True, application_name="tidemill bench")
        set_json_loads(decode_json, self._conn)
        for name in ("create_schema", "create_item", "create_outcome"):
            self._conn.execute(sql(f"{name}"))
        return self

    def __exit__(self, *_: object) -> None:
        self._conn.close()

    def truncate(self) -> None:
        self._conn.execute(sql("empty"))

    def copy_items(self, pieces: Iterable[bytes]) -> float:
        """Write all rows with one COPY; return the seconds, including the commit."""
        started = time.monotonic()
        with self._conn.cursor() as cursor, cursor.copy(sql("copy_item")) as copy:
            for piece in pieces:
                copy.write(piece)
        return time.monotonic() - started

    def copy_outcomes(self, job_id: UUID, blocks: Iterable[tuple[int, int, bytes]]) -> float:
        """Read the items and COPY the outcomes of each block, in one transaction per block; return the seconds."""
        started = time.monotonic()
        with self._conn.cursor(binary=True) as cursor:
            for lo, hi, outcomes in blocks:
                with self._conn.transaction():
                    cursor.execute(sql("read_items"), {"job_id": job_id, "lo": lo, "hi": hi})
                    cursor.fetchall()
                    with cursor.copy(sql("copy_outcome")) as copy:
                        copy.write(outcomes)
        return time.monotonic() - started


async def read_wal_bytes(conn: Connection) -> float:
    return float(await _fetch_value(conn, "wal"))


async def count_row_versions(conn: Connection) -> float:
    return float(await _fetch_value(conn, "row_versions"))


async def is_job_closed(conn: Connection, job_id: UUID) -> bool:
    return bool(await _fetch_value(conn, "is_closed", job_id=job_id))


async def read_processing_seconds(conn: Connection, job_id: UUID) -> float:
    """Return the seconds from the first claim of a closed job to its close, by the server's clock."""
    return float(await _fetch_value(conn, "turned", job_id=job_id))


async def read_job_results(conn: Connection, job_id: UUID) -> list[Any]:
    cursor = await conn.execute(sql("results"), {"job_id": job_id})
    return [row[0] for row in await cursor.fetchall()]


async def list_owner_jobs(conn: Connection, owner_id: int) -> list[UUID]:
    cursor = await conn.execute(sql("jobs_of"), {"owner_id": owner_id})
    return [row[0] for row in await cursor.fetchall()]


async def clear_registered_broker(conn: Connection) -> None:
    """Remove the registered broker and all hints."""
    await conn.execute(sql("forget_broker"))


async def add_hints(conn: Connection, kind: str, n: int) -> list[UUID]:
    """Create ``n`` jobs without items, each with a hint in the outbox; return their ids."""
    cursor = await conn.execute(sql("add_hints"), {"kind": kind, "n": n})
    return [row[0] for row in await cursor.fetchall()]


async def remove_hints(conn: Connection, kind: str) -> None:
    await conn.execute(sql("remove_hints"), {"kind": kind})


async def read_server_settings(conn: Connection) -> dict[str, str]:
    cursor = await conn.execute(sql("server"))
    return {name: setting for name, setting in await cursor.fetchall()}  # noqa: C416


async def count_dead_tuples(conn: Connection) -> float:
    return float(await _fetch_value(conn, "dead_tuples"))


async def count_connections(conn: Connection) -> float:
    return float(await _fetch_value(conn, "connections"))


async def read_backend_pid(conn: Connection) -> int:
    return int(await _fetch_value(conn, "backend_pid"))


async def remove_jobs(db: Database, jobs: Iterable[UUID]) -> None:
    """Remove these jobs with all their rows."""
    for job_id in jobs:
        await db.run(retention.delete_job, job_id)
        while await db.run(retention.delete_row_chunk_of_deleted_job, job_id):
            pass


async def remove_benchmark_data(db: Database, jobs: Iterable[UUID]) -> None:
    """Remove these jobs with all their rows, the bare tables, and the kinds and file records of the benchmark."""
    await remove_jobs(db, jobs)
    for name in ("drop", "forget_kinds", "forget_artifacts"):
        async with db.transaction() as conn:
            await conn.execute(sql(f"{name}"))


async def _fetch_value(conn: Connection, name: str, **params: Any) -> Any:
    cursor = await conn.execute(sql(f"{name}"), params)
    row = await cursor.fetchone()
    return None if row is None else row[0]
