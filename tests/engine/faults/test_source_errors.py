"""Tests of invalid files: a clear error for every invalid row or for the whole job, and no row is lost."""

import asyncio
import itertools
import time
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO
from uuid import UUID, uuid4

import pytest

from support import Workers, add_job, add_rows, assert_sound, closed, fates, job_of, rows, take
from tidemill import Item, Mill
from tidemill.config import Settings
from tidemill.core.child_exit import ExitCause
from tidemill.core.input_source import SourceReference
from tidemill.core.job import Job
from tidemill.core.status import JobStatus
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.children.supervisor import CrashSalvage
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.runtime import return_no_kind_hooks
from tidemill.store import ingestion
from tidemill.store.database import Database
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async
from tidemill.testing import drain

WITHIN = 60.0
ECHO = """
    @mill.handler("test", max_attempts=1)
    async def run(item):
        return item.input if len(str(item.input)) < 1000 else len(item.input["x"])
"""


async def submit_file(
    db: Database, settings: Settings, pieces: Iterable[bytes], form: str = "ndjson", kind: str = "test"
) -> UUID:
    return await submit_source_folder_file(
        db, SourceReference(blob=open_blob_store(settings.blobs).put(pieces).id, format=form), kind
    )


async def submit_source_folder_file(db: Database, source: SourceReference, kind: str = "test") -> UUID:
    async with db.transaction() as conn:
        return (await run_steps_async(conn, build_submission_steps(Submission(kind, source=source), ())))[0]


async def read(workers: Workers, db: Database, job_id: UUID, **options: Any) -> Job:
    workers.app(ECHO)
    workers.start(**options)
    job = await closed(db, job_id, WITHIN)
    await assert_sound(db)
    return job


async def reasons(db: Database, job_id: UUID) -> dict[int, str]:
    query = "SELECT seq, error->>'reason' FROM tidemill.outcome WHERE job_id = %s AND status = 'failed'"
    return dict(await rows(db, query, job_id))


async def test_ndjson_invalid_lines_fail_and_others_are_done(
    workers: Workers, db: Database, settings: Settings
) -> None:
    bad = {
        1: b"not json",
        2: b'{"x": ',
        3: b'{"x": "nul \x00"}',
        4: b'{"x": "nul \\u0000"}',
        5: b'{"x": "\xff\xfe"}',
        6: b'{"x": NaN}',
        7: b'{"x": "half \\ud800"}',
        8: b"[" * 100_000,
        9: b"\x00\x01\x02",
        10: b'{"x": 1e999}',
    }
    lines = [bad.get(n, b'{"n": %d}' % n) + b"\n" for n in range(1_000)]
    job = await read(workers, db, await submit_file(db, settings, lines))
    assert job.status is JobStatus.COMPLETED_WITH_ERRORS
    assert await fates(db, job.id) == {("done", None, 1): 990, ("failed", "invalid", 1): 10}
    assert set(await reasons(db, job.id)) == set(bad)
    wrong = "SELECT count(*) FROM tidemill.outcome WHERE status = 'done' AND (result->>'n')::bigint <> seq"
    assert await rows(db, wrong) == [(0,)]


async def test_ten_megabyte_rows_fail_unless_max_row_bytes_allows_them(
    workers: Workers, db: Database, settings: Settings
) -> None:
    row = b'{"x": "' + b"y" * 10_000_000 + b'"}\n'
    lines = [b'{"x": "small"}\n', row, row, b'{"x": "small"}\n']
    refused = await read(workers, db, await submit_file(db, settings, lines))
    assert await fates(db, refused.id) == {("done", None, 1): 2, ("failed", "invalid", 1): 2}
    assert "longer than" in (await reasons(db, refused.id))[1]
    workers.end()
    mb = 1 << 20
    limits = {"max_row_bytes": 16 * mb, "ingest_max_batch_bytes": 16 * mb}
    carried = await read(workers, db, await submit_file(db, settings, lines), **limits)
    assert await fates(db, carried.id) == {("done", None, 1): 4}
    sizes = "SELECT result FROM tidemill.outcome WHERE job_id = %s AND seq IN (1, 2)"
    assert await rows(db, sizes, carried.id) == [(10_000_000,), (10_000_000,)]


async def test_unexpected_reader_error_fails_job_and_next_source_is_read(
    db: Database, settings: Settings, mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill.handler("test")(lambda item: item.input)
    first = await submit_file(db, settings, [b"{}\n"])
    second = await submit_file(db, settings, [b"{}\n"])
    blobs_open, times = FolderBlobStore.open, itertools.count()

    def stumbling(folder: FolderBlobStore, name: str) -> BinaryIO:
        if next(times) == 0:
            raise zlib.error("invalid stored block")
        return blobs_open(folder, name)

    monkeypatch.setattr(FolderBlobStore, "open", stumbling)
    await drain(mill, db=db)
    jobs = [await job_of(db, job_id) for job_id in (first, second)]
    assert [job.status for job in jobs] == [JobStatus.FAILED, JobStatus.COMPLETED]
    assert jobs[0].failure_reason == "Cannot read the source: error: invalid stored block"


@pytest.mark.parametrize("form", ["ndjson", "csv"])
async def test_missing_source_file_fails_job_with_reason(form: str, workers: Workers, db: Database) -> None:
    job = await read(workers, db, await submit_source_folder_file(db, SourceReference(blob=uuid4().hex, format=form)))
    assert job.status is JobStatus.FAILED
    assert "Cannot read the source" in (job.failure_reason or "")


@pytest.mark.parametrize(
    "source",
    [{}, {"blob": "../../etc/passwd", "format": "ndjson"}, {"blob": None, "format": "ndjson"}],
    ids=["nothing", "path", "null"],
)
async def test_invalid_source_reference_fails_job(source: dict[str, Any], workers: Workers, db: Database) -> None:
    job = await read(workers, db, await submit_source_folder_file(db, SourceReference.from_json(source)))
    assert job.status is JobStatus.FAILED
    assert job.failure_reason


async def test_unknown_source_format_fails_job(workers: Workers, db: Database, settings: Settings) -> None:
    job = await read(workers, db, await submit_file(db, settings, [b"x"], "docx"))
    assert job.status is JobStatus.FAILED
    assert "docx" in (job.failure_reason or "")


@pytest.mark.parametrize("content", [b"", b"\n\n  \n", b"\xef\xbb\xbf"], ids=["empty", "blank", "bom"])
async def test_empty_file_completes_job_with_zero_items(
    content: bytes, workers: Workers, db: Database, settings: Settings
) -> None:
    job = await read(workers, db, await submit_file(db, settings, [content]))
    assert (job.status, job.counts.total) == (JobStatus.COMPLETED, 0)


CSV_ROWS = b"1,2\n" * 50
BAD_CSV = {
    "empty": b"",
    "nul in the header": b"a\x00,b\n" + CSV_ROWS,
    "no UTF-8 in the header": b"a\xff,b\n" + CSV_ROWS,
    "a header without end": b"a" * 3_000 + b",b\n" + CSV_ROWS,
}


async def test_csv_bad_header_fails_job_with_reason(workers: Workers, db: Database, settings: Settings) -> None:
    workers.app(ECHO)
    workers.start(max_row_bytes=1_000, max_concurrent_jobs=100)
    jobs = {name: await submit_file(db, settings, [content], "csv") for name, content in BAD_CSV.items()}
    waits = [closed(db, job_id, WITHIN) for job_id in jobs.values()]
    await asyncio.gather(*waits, return_exceptions=True)
    ended = {name: await job_of(db, job_id) for name, job_id in jobs.items()}
    assert {name: job.status for name, job in ended.items() if job.status is not JobStatus.FAILED} == {}
    assert all("Cannot read the source" in (job.failure_reason or "") for job in ended.values())
    await assert_sound(db)


async def test_csv_bad_rows_fail_and_others_are_done(workers: Workers, db: Database, settings: Settings) -> None:
    bad = {3: b"1\n", 4: b"1,2,3\n", 5: b"\xff,2\n", 6: b"nul \x00,2\n", 7: b'"' + b"x" * 2_000 + b'",2\n'}
    lines = [b"a,b\n", *(bad.get(n, b"%d,y\n" % n) for n in range(100))]
    job = await read(workers, db, await submit_file(db, settings, lines, "csv"), max_row_bytes=1_000)
    assert await fates(db, job.id) == {("done", None, 1): 95, ("failed", "invalid", 1): 5}
    assert set(await reasons(db, job.id)) == set(bad)


async def test_job_of_unhandled_kind_waits_without_blocking_others(
    workers: Workers, db: Database, settings: Settings
) -> None:
    waiting = await submit_file(db, settings, [b'{"n": 1}\n'] * 10, kind="later")
    inline = await add_job(db, 10, "later")
    await read(workers, db, await submit_file(db, settings, [b'{"n": 1}\n'] * 10))
    assert {(await job_of(db, job_id)).status for job_id in (waiting, inline)} == {JobStatus.PENDING}
    workers.app('mill.handler("later")(lambda item: None)', "other")
    workers.start("other:mill")
    for job_id in (waiting, inline):
        await closed(db, job_id)
        assert await fates(db, job_id) == {("done", None, 1): 10}
    await assert_sound(db)


async def test_poison_items_during_ingest_do_not_stop_ingest(
    workers: Workers, db: Database, settings: Settings
) -> None:
    workers.app("""
        @mill.handler("test", concurrency=5)
        async def run(item):
            if item.input["n"] in (2, 4, 6):
                os.abort()
    """)
    lines = (b'{"n": %d}\n' % n for n in range(20_000))
    job_id = await submit_file(db, settings, lines)
    workers.start(ingest_max_rows=64, worker_lanes=1)
    job = await closed(db, job_id)
    assert (job.status, job.failure_reason) == (JobStatus.COMPLETED_WITH_ERRORS, None)
    assert await fates(db, job_id) == {("done", None, 1): 19_997, ("failed", "poison", 0): 3}
    await assert_sound(db)


async def test_child_crash_with_running_item_does_not_fail_ingest(db: Database, mill: Mill, settings: Settings) -> None:
    @mill.handler("test")
    async def run(item: Item) -> None:
        """Never called: its process dies before."""

    reading = await submit_file(db, settings, [b'{"n": 1}\n'])
    running = await add_job(db, 3)
    aftermath = CrashSalvage(db, mill.registry, "w1", find_kind_hooks=return_no_kind_hooks, lease_seconds=30.0)
    for seq in range(3):
        lane, reader = (book := SharedState.create(2)).lanes
        lease = await take(db, running, wanted=1)
        lane.reset_and_record_lease(lease.lease_id)
        lane.mark_item_started(0, seq, 1)
        reader.reset_and_record_lease(right := uuid4(), ingest=True)
        assert await db.run(ingestion.take_ingest_lease, ["test"], lease_id=right, lease=30.0, worker="w1") is not None
        await aftermath.recover_leased_work(book, ExitCause.CRASHED, 0)
        book.close()
    assert (await job_of(db, reading)).failure_reason is None
    await assert_sound(db)


async def test_slow_submission_is_not_aborted_as_stuck(workers: Workers, db: Database) -> None:
    def slowly() -> Iterator[bytes]:
        for _ in range(120):
            time.sleep(0.05)
            yield b'{"x": "' + b"y" * 50_000 + b'"}'

    workers.app(ECHO)
    workers.start()
    await closed(db, await add_job(db, 1))
    job_id = await add_rows(db, slowly())
    await closed(db, job_id)
    assert await fates(db, job_id) == {("done", None, 1): 120}
    await assert_sound(db)
