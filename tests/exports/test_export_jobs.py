"""Exports as jobs: one complete file or none, which expires."""

import asyncio
import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from exports.scenes import Scene, lines, with_people
from support import assert_sound, eventually, file_of, job_of, rows, shift_clock
from tidemill.core.errors import Conflict
from tidemill.core.job import Item
from tidemill.core.status import JobStatus
from tidemill.engine import maintenance_loop
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.exports import table_exporter
from tidemill.exports.table_exporter import copy_query_to_sink
from tidemill.exports.use_cases import open_export_file, read_export_file_info
from tidemill.jobs import job_control
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing import drain


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    return await with_people(scene)


async def test_export_file_matches_reported_name_size_hash_and_rows(scene: Scene) -> None:
    events: list[Event] = []
    end = subscribe(events.append)
    job = await scene.made("people", "id[lte]=10")
    end()
    assert job.status is JobStatus.COMPLETED
    found = await open_export_file(scene.db, scene.blobs, job)
    with found.file as file:
        data = file.read()
    assert lines(data)[:2] == ["id,name", "1,name 1"]
    assert found.name == f"public_people-{job.key}.csv"
    assert (found.size, found.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    made = await scene.result(job.id)
    assert (made["rows"], made["format"], made["compression"], made["spreadsheet_safe"]) == (10, "csv", "none", False)
    [event] = [fields for name, fields in events if name == "export.completed"]
    assert (event["job"], event["resource_type"], event["total_records"]) == (job.id, "public.people", 10)
    await assert_sound(scene.db, job.id)


async def test_export_fails_with_reason_when_its_column_is_renamed_after_submit(scene: Scene) -> None:
    first, second = await scene.submit("people"), await scene.submit("people", fields=("id",))
    await scene.run("ALTER TABLE people RENAME COLUMN name TO title")
    await drain(scene.mill, db=scene.db)
    failed = await job_of(scene.db, first)
    assert failed.status is JobStatus.FAILED
    with pytest.raises(Conflict, match=r"t\.name does not exist"):
        await read_export_file_info(scene.db, failed)
    assert (await job_of(scene.db, second)).status is JobStatus.COMPLETED, "the renamed column was not requested"
    assert scene.stored() == [await file_of(scene.db, second)]


async def test_cancelled_table_export_leaves_no_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_exporter, "EXPORT_CANCEL_CHECK_S", 0.0)
    job_id = await scene.submit("people")
    wanted = asyncio.Event()

    async def slow(db: Any, query: str, feed: Any, sink: Any) -> int:
        async def late(chunk: bytes) -> None:
            await job_control.cancel_job(scene.db, job_id)
            wanted.set()
            await sink(chunk)

        return await copy_query_to_sink(db, query, feed, late)

    monkeypatch.setattr(table_exporter, "copy_query_to_sink", slow)
    await drain(scene.mill, db=scene.db)
    assert wanted.is_set()
    job = await job_of(scene.db, job_id)
    assert job.status is JobStatus.CANCELLED
    assert job.counts.cancelled == 1
    assert scene.stored() == []
    await eventually(scene.is_quiet)
    await assert_sound(scene.db, job_id)


async def test_expired_export_file_is_refused_and_removed_by_cleanup(scene: Scene) -> None:
    job = await scene.made("people")
    expires_at = datetime.fromisoformat((await scene.result(job.id))["expires_at"])
    assert job.created_at is not None
    assert 167 < (expires_at - job.created_at).total_seconds() / 3600 < 169
    cleaner, file_id = BlobCleanupLoop(scene.db, scene.blobs), await file_of(scene.db, job.id)
    assert await cleaner.remove_unneeded_blobs() == []
    await shift_clock(scene.db, "8 days")
    with pytest.raises(Conflict, match="has expired"):
        await read_export_file_info(scene.db, job)
    assert await cleaner.remove_unneeded_blobs() == [file_id]
    assert scene.stored() == []


async def test_file_of_crashed_worker_is_removed_after_export_is_deleted(scene: Scene) -> None:
    job_id = await scene.submit("people")
    exporter = table_exporter.TableExporter(scene.db, scene.blobs, ttl_hours=1)
    [(input_,)] = await rows(scene.db, "SELECT input FROM tidemill.item WHERE job_id = %s", job_id)
    made = await exporter.write_table_file(Item(job_id, 0, input_))
    await job_control.delete_job(scene.db, job_id)
    assert await BlobCleanupLoop(scene.db, scene.blobs).remove_unneeded_blobs() == [made["file_id"]]


async def test_table_export_contains_one_snapshot_during_concurrent_writes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file never mixes rows from before and after a concurrent change."""
    await scene.run("INSERT INTO people SELECT n, repeat('x', 900) FROM generate_series(1001, 8000) n")
    chunks = 0

    async def disturbed(db: Any, query: str, feed: Any, sink: Any) -> int:
        async def late(chunk: bytes) -> None:
            nonlocal chunks
            chunks += 1
            if chunks == 1:
                await scene.run("UPDATE people SET name = 'later'", "DELETE FROM people WHERE id > 7000")
            await sink(chunk)

        return await copy_query_to_sink(db, query, feed, late)

    monkeypatch.setattr(table_exporter, "copy_query_to_sink", disturbed)
    job = await scene.made("people")
    assert chunks > 1
    with (await open_export_file(scene.db, scene.blobs, job)).file as file:
        data = file.read()
    assert data.count(b"\n") == 8001
    assert b"later" not in data


async def test_export_cancelled_after_file_is_complete_offers_no_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await scene.submit("people")
    insist = table_exporter.TableExporter._stop_unless_still_requested

    async def cancelled_after(exporter: table_exporter.TableExporter, export_id: UUID) -> None:
        await insist(exporter, export_id)
        await job_control.cancel_job(scene.db, job_id)

    monkeypatch.setattr(table_exporter.TableExporter, "_stop_unless_still_requested", cancelled_after)
    await drain(scene.mill, db=scene.db)
    job = await job_of(scene.db, job_id)
    assert (job.status, job.counts.done) == (JobStatus.CANCELLED, 1)
    with pytest.raises(Conflict, match=r"has no file \(status: cancelled\)"):
        await read_export_file_info(scene.db, job)
    assert await BlobCleanupLoop(scene.db, scene.blobs).remove_unneeded_blobs() == [await file_of(scene.db, job_id)]


async def test_cleanup_removes_files_listed_after_missing_files(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await scene.made("people")
    monkeypatch.setattr(maintenance_loop, "BLOB_CLEANUP_BATCH_FILES", 2)
    await scene.run(
        "INSERT INTO tidemill.unneeded_file (file_id, at)"
        " SELECT lpad(n::text, 32, '0'), tidemill.now() - interval '1 day' FROM generate_series(1, 5) n"
    )
    file_id = await file_of(scene.db, job.id)
    await job_control.delete_job(scene.db, job.id)
    assert await BlobCleanupLoop(scene.db, scene.blobs).remove_unneeded_blobs() == [file_id]
