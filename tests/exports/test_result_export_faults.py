"""Result exports during deletes, kills, cancellations and full disks: a complete file or none."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from support import Workers, add_job, closed, eventually, fates, file_of, job_of, rows, settle, take
from support.result_exports import ask, big_results, export, failing, fetch, stored_files
from support.result_values import read_csv
from tidemill import Item, Mill
from tidemill.core.file_format import FileFormat
from tidemill.core.outcome import Outcome
from tidemill.engine.maintenance_loop import BlobCleanupLoop, MaintenanceLoop
from tidemill.exports.handler import ResultExporter
from tidemill.exports.result_export import ResultExportRequest, ResultFileWriter
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobWriter
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.jobs import job_control
from tidemill.store import retention
from tidemill.store.database import Database
from tidemill.testing import drain


class Held:
    """Blocks every export at its first packet until ``let_go`` is called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reached, self._let_go = threading.Event(), threading.Event()
        add = ResultFileWriter.write_results

        def held(table: ResultFileWriter, packet: Any) -> None:
            self._reached.set()
            assert self._let_go.wait(30)
            add(table, packet)

        monkeypatch.setattr(ResultFileWriter, "write_results", held)

    async def reached(self) -> None:
        assert await asyncio.to_thread(self._reached.wait, 30)

    def let_go(self) -> None:
        self._let_go.set()


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    return Held(monkeypatch)


async def settled_job(db: Database, n: int = 20) -> UUID:
    job_id = await add_job(db, n, kind="elsewhere", columns=("ok",))
    await settle(db, await take(db, job_id))
    return job_id


async def why_failed(db: Database, export_id: UUID) -> str:
    [(code,)] = await rows(db, "SELECT error->>'code' FROM tidemill.outcome WHERE job_id = %s", export_id)
    return str(code)


async def test_job_deleted_during_export_leaves_no_file(mill: Mill, db: Database, held: Held) -> None:
    job_id = await settled_job(db)
    export_id, _ = await ask(db, mill, job_id)
    draining = asyncio.create_task(drain(mill, db=db))
    await held.reached()
    await job_control.delete_job(db, job_id)
    while await MaintenanceLoop(db, "w1").remove_row_chunk_of_deleted_jobs():
        pass
    held.let_go()
    await draining
    assert await why_failed(db, export_id) == "job_gone"
    assert stored_files(mill) == []


async def test_export_deleted_while_running_leaves_no_file(mill: Mill, db: Database, held: Held) -> None:
    export_id, _ = await ask(db, mill, await settled_job(db))
    draining = asyncio.create_task(drain(mill, db=db))
    await held.reached()
    await job_control.delete_job(db, export_id)
    held.let_go()
    await draining
    assert stored_files(mill) == []


async def test_export_fails_when_job_is_deleted_before_it_runs(mill: Mill, db: Database) -> None:
    job_id = await settled_job(db)
    export_id, _ = await ask(db, mill, job_id)
    await job_control.delete_job(db, job_id)
    await drain(mill, db=db)
    assert await why_failed(db, export_id) == "job_gone"
    assert stored_files(mill) == []


async def test_result_export_contains_one_snapshot_during_concurrent_flush(
    mill: Mill, db: Database, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.exports.result_export.RESULT_WINDOW_ITEMS", 5)
    job_id = await add_job(db, 20, kind="elsewhere", columns=("ok",), batch_size=10)
    await settle(db, await take(db, job_id))
    export_id, _ = await ask(db, mill, job_id)
    draining = asyncio.create_task(drain(mill, db=db))
    await held.reached()
    await settle(db, await take(db, job_id))
    held.let_go()
    await draining
    lines = read_csv(await fetch(db, mill, export_id))
    assert [line[3] for line in lines[1:]] == ["done"] * 10 + ["pending"] * 10


async def test_cancelled_result_export_leaves_no_file(mill: Mill, db: Database, held: Held) -> None:
    _, item = await asked_directly(db, mill)
    running = asyncio.create_task(ResultExporter(db, open_blob_store(mill.settings.blobs)).write_result_file(item))
    await held.reached()
    running.cancel()
    held.let_go()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stored_files(mill) == []


async def test_export_cancelled_while_finishing_file_leaves_no_file(
    mill: Mill, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, item = await asked_directly(db, mill)
    loop, finish = asyncio.get_running_loop(), BlobWriter.finish

    def cancelled_meanwhile(writing: BlobWriter) -> Any:
        loop.call_soon_threadsafe(running.cancel)
        return finish(writing)

    monkeypatch.setattr(BlobWriter, "finish", cancelled_meanwhile)
    running = asyncio.create_task(ResultExporter(db, open_blob_store(mill.settings.blobs)).write_result_file(item))
    with pytest.raises(asyncio.CancelledError):
        await running
    assert stored_files(mill) == []


async def asked_directly(db: Database, mill: Mill) -> tuple[UUID, Item]:
    """Submit an export; return its id and the item that a worker would process."""
    job_id = await settled_job(db)
    export_id, _ = await ask(db, mill, job_id)
    return export_id, Item(export_id, 0, ResultExportRequest(job_id, FileFormat.CSV).to_item_input())


@pytest.mark.parametrize("format_", list(FileFormat))
@pytest.mark.parametrize("verb", ["write", "finish"])
async def test_full_disk_leaves_no_file_and_result_export_is_retried(
    format_: str, verb: str, mill: Mill, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, verb, times=1)
    job_id = await settled_job(db)
    export_id, _ = await ask(db, mill, job_id, format_)
    await drain(mill, retries=False, db=db)
    assert stored_files(mill) == []
    assert (await job_of(db, export_id)).counts.retry_wait == 1
    await drain(mill, db=db)
    assert await fates(db, export_id) == {("done", None, 2): 1}
    assert stored_files(mill) == [await file_of(db, export_id)]


async def test_late_worker_does_not_replace_finished_export_file(
    mill: Mill, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_id, item = await asked_directly(db, mill)
    blobs, ending, others_are_done = open_blob_store(mill.settings.blobs), threading.Event(), threading.Event()
    finish = BlobWriter.finish

    def late(writing: BlobWriter) -> Any:
        if not ending.is_set():
            ending.set()
            assert others_are_done.wait(30)
        return finish(writing)

    monkeypatch.setattr(BlobWriter, "finish", late)
    zombie = asyncio.create_task(ResultExporter(db, blobs).write_result_file(item))
    assert await asyncio.to_thread(ending.wait, 30)
    await drain(mill, db=db)
    file_id = await file_of(db, export_id)
    others_are_done.set()
    assert (await zombie)["file_id"] != file_id
    assert stored_files(mill) == sorted([file_id, zombie.result()["file_id"]])
    assert len(read_csv(await fetch(db, mill, export_id))) == 21
    await job_control.delete_job(db, export_id)
    await BlobCleanupLoop(db, blobs).remove_unneeded_blobs()
    assert stored_files(mill) == [], "the unrecorded file is removed with the export"


async def test_export_finished_by_another_worker_is_not_repeated(mill: Mill, db: Database, held: Held) -> None:
    export_id, item = await asked_directly(db, mill)
    held.let_go()
    await drain(mill, db=db)
    with pytest.raises(Outcome):
        await ResultExporter(db, open_blob_store(mill.settings.blobs)).write_result_file(item)
    assert stored_files(mill) == [await file_of(db, export_id)]


async def test_export_file_is_removed_with_its_export_but_not_with_its_job(mill: Mill, db: Database) -> None:
    blobs = open_blob_store(mill.settings.blobs)
    job_id = await settled_job(db)
    kept, _ = await ask(db, mill, job_id, "ndjson")
    gone, _ = await ask(db, mill, job_id, "csv")
    await drain(mill, db=db)
    await job_control.delete_job(db, job_id)
    assert await BlobCleanupLoop(db, blobs).remove_unneeded_blobs() == []
    files = [await file_of(db, gone), await file_of(db, kept)]
    await job_control.delete_job(db, gone)
    assert await BlobCleanupLoop(db, blobs).remove_unneeded_blobs() == files[:1]
    assert stored_files(mill) == files[1:]


async def test_files_of_purged_exports_are_removed(mill: Mill, db: Database) -> None:
    job_id = await settled_job(db)
    path = await export(db, mill, job_id)
    assert path.exists()
    [(export_id,)] = await rows(db, "SELECT id FROM tidemill.job WHERE kind = 'tidemill.export'")
    file_id = await file_of(db, export_id)
    for week in await db.run(retention.list_partition_weeks):
        assert await db.run(retention._mark_week_purged_if_old, week, -7 * 86_400.0) or week.lo > export_id
    assert await BlobCleanupLoop(db, open_blob_store(mill.settings.blobs)).remove_unneeded_blobs() == [file_id]


def test_stale_partial_file_is_removed_and_fresh_one_is_kept(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path)
    fresh, stale = blobs.open_writer(), blobs.open_writer()
    for writing in (fresh, stale):
        writing.write(b"half")
    os.utime(stale._temporary, (0, 0))
    whole = blobs.put([b"whole"])
    os.utime(tmp_path / whole.id, (0, 0))
    assert blobs.remove_stale_scratch_files(3_600) == [stale._temporary.name]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([fresh._temporary.name, whole.id])
    for writing in (fresh, stale):
        writing.discard()
    assert FolderBlobStore(tmp_path / "nowhere").remove_stale_scratch_files(3_600) == []


async def test_killed_export_is_rerun_and_its_partial_file_is_removed(
    workers: Workers, mill: Mill, db: Database
) -> None:
    job_id = await big_results(db, 40_000)
    export_id, _ = await ask(db, mill, job_id)
    workers.app("")
    process = workers.start()

    async def half_written() -> list[str]:
        return [name for name in stored_files(mill) if name.endswith(".tmp")]

    (half,) = await eventually(half_written)
    os.kill(workers.children(process)[0], signal.SIGKILL)
    await closed(db, export_id)
    assert await fates(db, export_id) == {("done", None, 1): 1}
    lines = read_csv(await fetch(db, mill, export_id))
    assert [int(line[0]) for line in lines[1:]] == list(range(40_000))
    assert stored_files(mill) == sorted([half, await file_of(db, export_id)])
    os.utime(Path(mill.settings.blobs) / half, (0, 0))
    await BlobCleanupLoop(db, open_blob_store(mill.settings.blobs)).tick()
    assert stored_files(mill) == [await file_of(db, export_id)]


async def test_large_result_export_runs_within_memory_limit(workers: Workers, mill: Mill, db: Database) -> None:
    """Export 200,000 rows with 120 MB of results, the last 40 with 1 MB each, in a child process limited to 200 MB."""
    job_id = await big_results(db, 200_000, large=40)
    asked = [(await ask(db, mill, job_id, format_))[0] for format_ in (FileFormat.CSV, FileFormat.XLSX)]
    workers.app("")
    workers.start(child_memory_mb=200, lock_floor_ms=30_000, lock_cap_ms=60_000, db_timeout_ms=20_000)
    for export_id in asked:
        await closed(db, export_id, 300)
        assert {status for status, _, _ in await fates(db, export_id)} == {"done"}
    counted = await rows(db, "SELECT result->'rows' FROM tidemill.outcome WHERE job_id = ANY(%s)", asked)
    assert counted == [(200_000,)] * 2
