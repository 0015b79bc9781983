"""Tests of ingest chunks: they grow while the database is fast and shrink when it is slow or fails."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from psycopg import errors

from support import assert_sound, job_of
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.store import ingestion
from tidemill.store.database import Connection, Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing import drain

PATIENT = {"db_p50_ms": 10_000, "db_p95_ms": 20_000}  # a slow machine must not affect this test


@pytest.fixture
def heard() -> Iterator[list[Event]]:
    events: list[Event] = []
    unsubscribe = subscribe(events.append)
    yield events
    unsubscribe()


async def read_file(db: Database, settings: Settings, lines: list[bytes]) -> UUID:
    """Submit a file and ingest it in this process."""
    mill = Mill(settings)

    @mill.handler("test")
    async def run(item: Item) -> None:
        """Do nothing."""

    blob = open_blob_store(settings.blobs).put(line + b"\n" for line in lines)
    async with db.transaction() as conn:
        source = SourceReference(blob=blob.id, format="ndjson")
        job_id = (await run_steps_async(conn, build_submission_steps(Submission("test", source=source), ())))[0]
    await drain(mill, db=db)
    assert (await job_of(db, job_id)).counts.done == len(lines)
    await assert_sound(db)
    return job_id


def chunks(heard: list[Event]) -> list[int]:
    return [fields["hi"] - fields["lo"] for name, fields in heard if name == "ingest.chunk"]


def shrunk(heard: list[Event]) -> list[tuple[int, int, str]]:
    return [(said["was"], said["now"], said["reason"]) for name, said in heard if name == "ingest.shrunk"]


async def test_ingest_chunks_double_while_database_is_fast(
    db: Database, settings: Settings, heard: list[Event]
) -> None:
    await read_file(db, settings.model_copy(update=PATIENT), [b'{"n": %d}' % n for n in range(2_000)])
    first, *others = chunks(heard)
    assert (first, sum(others)) == (64, 1_936)
    assert others[0] in (64, 128), "the second is read while the first is written, or slightly later"
    assert others[:-1] == sorted(others[:-1]), "on a slow machine the size may double twice between two of them"
    assert {n & (n - 1) for n in others[:-1]} == {0}
    assert max(others) >= 512
    assert not shrunk(heard)


async def test_ingest_chunks_stop_growing_at_byte_limit(db: Database, settings: Settings, heard: list[Event]) -> None:
    small = settings.model_copy(update=PATIENT | {"ingest_max_batch_bytes": 20_000, "max_row_bytes": 10_000})
    await read_file(db, small, [b'{"x": "%s"}' % (b"x" * 2_000) for _ in range(60)])
    assert max(chunks(heard)) == 10
    assert not shrunk(heard)


async def test_ingest_chunks_shrink_after_database_errors(
    db: Database, settings: Settings, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = ingestion.append_chunk, iter(range(1_000))

    async def troubled(conn: Connection, *args: Any, **kwargs: Any) -> Any:
        if next(calls) in (5, 6):
            raise errors.DeadlockDetected("deadlock detected")
        return await append(conn, *args, **kwargs)

    monkeypatch.setattr(ingestion, "append_chunk", troubled)
    await read_file(db, settings.model_copy(update=PATIENT), [b'{"n": %d}' % n for n in range(8_000)])
    sizes = chunks(heard)
    small = max(64, sizes[5] // 16)  # a quarter for each of the two failures
    assert sizes[5] >= 1_024
    assert small <= 128
    assert shrunk(heard) == [(2_048, small, "errors")]
    assert small in sizes[6:8], "one may have been read before the failure"


async def test_ingest_chunks_shrink_after_connection_pool_wait(
    db: Database, settings: Settings, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = ingestion.append_chunk, iter(range(1_000))

    async def waited_for(conn: Connection, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 4:
            db.stats.record_pool_wait(5.0, is_exhausted=True)  # another transaction of this process waited
        return await append(conn, *args, **kwargs)

    monkeypatch.setattr(ingestion, "append_chunk", waited_for)
    await read_file(db, settings.model_copy(update=PATIENT), [b'{"n": %d}' % n for n in range(3_000)])
    assert [reason for *_, reason in shrunk(heard)] == ["pool"]


async def test_ingest_chunks_shrink_when_database_is_slow(
    db: Database, settings: Settings, heard: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    append, calls = ingestion.append_chunk, iter(range(1_000))

    async def slow(conn: Connection, *args: Any, **kwargs: Any) -> Any:
        if next(calls) == 4:
            await conn.execute(b"SELECT pg_sleep(1.2)")
        return await append(conn, *args, **kwargs)

    monkeypatch.setattr(ingestion, "append_chunk", slow)
    patient = settings.model_copy(update={"db_p50_ms": 900, "db_p95_ms": 1_000})
    await read_file(db, patient, [b'{"n": %d}' % n for n in range(3_000)])
    assert "slow" in [reason for *_, reason in shrunk(heard)]
