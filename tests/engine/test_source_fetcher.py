"""Downloads of sources: they do not delay other jobs, and one user has a limited number of them."""

from collections.abc import Iterator
from uuid import UUID, uuid4

import pytest

from support import Workers, assert_sound, closed, eventually, job_of
from support.loopback_server import Request, Server
from tidemill.config import Settings
from tidemill.core.input_source import SourceReference
from tidemill.core.job import Job
from tidemill.core.principal import Role
from tidemill.core.status import JobStatus
from tidemill.files.blobs import open_blob_store
from tidemill.store import ingestion, quota_records, users
from tidemill.store.database import Database
from tidemill.store.ingestion import IngestLease
from tidemill.store.job_submission import Submission, build_submission_steps, run_steps_async

HALF = b'{"n": 1}\n' * 1_000


@pytest.fixture
def slow_server() -> Iterator[Server]:
    def send_half(request: Request) -> None:
        request.answer("200 OK", f"Content-Length: {2 * len(HALF)}", body=HALF)
        request.stall()

    with Server(send_half) as server:
        yield server


@pytest.fixture
def quick_server() -> Iterator[Server]:
    with Server(lambda request: request.answer("200 OK", f"Content-Length: {len(HALF)}", body=HALF)) as server:
        yield server


async def submit(db: Database, source: SourceReference, owner_id: int = 0) -> UUID:
    spec = Submission("test", source=source, owner_id=owner_id)
    async with db.transaction() as conn:
        return (await run_steps_async(conn, build_submission_steps(spec, ())))[0]


async def test_slow_download_does_not_delay_other_jobs_and_shows_its_progress(
    workers: Workers, db: Database, settings: Settings, slow_server: Server
) -> None:
    workers.app('mill.handler("test")(lambda item: None)')
    slow = await submit(db, SourceReference(url=slow_server.url(), blob=uuid4().hex, format="ndjson"))
    workers.start(remote_allow=f"127.0.0.1:{slow_server.port}", poll_ms=100)

    async def has_progress() -> bool:
        state = await db.read(ingestion.read_fetch_progress, slow)
        return state == ingestion.FetchState(
            is_complete=False, is_active=True, bytes=len(HALF), total_bytes=2 * len(HALF)
        )

    await eventually(has_progress)
    stored = open_blob_store(settings.blobs).put([HALF])
    other = await closed(db, await submit(db, SourceReference(blob=stored.id, format="ndjson")), 30)
    assert (other.status, other.counts.done) == (JobStatus.COMPLETED, 1_000)
    assert not (await job_of(db, slow)).is_closed
    await assert_sound(db)


async def test_file_that_exceeds_cpu_limit_fails_its_job_and_others_are_read(
    workers: Workers, db: Database, settings: Settings
) -> None:
    workers.app('mill.handler("test")(lambda item: None)')
    blobs = open_blob_store(settings.blobs)
    slow, good = blobs.put([b"[[" + b"[]," * 8_000_000]), blobs.put([HALF])
    jobs = [
        await submit(db, SourceReference(blob=blob.id, format=format_))
        for blob, format_ in ((slow, "json"), (good, "ndjson"))
    ]
    workers.start(file_cpu_s=1)
    first, second = [await closed(db, job_id, 60) for job_id in jobs]
    assert first.failure_reason == "Cannot read the source: Reading the file needs more than 1 s of CPU time"
    assert (second.status, second.counts.done) == (JobStatus.COMPLETED, 1_000)
    await assert_sound(db)


async def test_downloads_of_one_user_are_limited_and_leave_others(db: Database) -> None:
    async def take() -> IngestLease | None:
        return await db.run(ingestion.take_fetch_lease, ["test"], lease_id=uuid4(), lease=30, worker="w1", per_user=2)

    url = "http://127.0.0.1:1/x"
    mine = {await submit(db, SourceReference(url=url, blob=uuid4().hex)) for _ in range(3)}
    taken = [await take() for _ in range(3)]
    assert {lease.job_id for lease in taken if lease} < mine
    assert taken[2] is None
    other = await submit(db, SourceReference(url=url, blob=uuid4().hex), owner_id=7)
    lease = await take()
    assert lease is not None
    assert lease.job_id == other


async def test_downloads_count_in_storage_quota_and_end_when_they_exceed_it(
    workers: Workers, db: Database, slow_server: Server, quick_server: Server
) -> None:
    workers.app('mill.handler("test")(lambda item: None)')
    user = await db.run(users.add_user, "ada", Role.USER)
    limit = 2 * len(HALF) - 1
    await db.run(quota_records.set_quota, user.id, {"stored_bytes": limit}, [])
    ports = f"127.0.0.1:{slow_server.port},127.0.0.1:{quick_server.port}"
    workers.start(remote_allow=ports, poll_ms=100)

    async def download(server: Server) -> Job:
        source = SourceReference(url=server.url(), blob=uuid4().hex, format="ndjson")
        return await closed(db, await submit(db, source, user.id), 30)

    endless = await download(slow_server)
    expected = f'Quota "stored_bytes" exceeded: {2 * len(HALF):,} of {limit:,}. Send a smaller file.'
    assert (endless.status, endless.failure_reason) == (JobStatus.FAILED, expected)
    assert (await download(quick_server)).status is JobStatus.COMPLETED
    assert await db.read(quota_records.count_stored_bytes, user.id) == len(HALF)
    second = await download(quick_server)
    assert second.status is JobStatus.FAILED
    assert str(second.failure_reason).endswith("Delete jobs whose files are no longer needed.")
    await assert_sound(db)
