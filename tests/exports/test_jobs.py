"""Exports as jobs: one file, whole or absent, kept for a while."""

import asyncio
import hashlib
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from exports.scenes import Scene, lines, with_people
from support import assert_sound, eventually, file_of, job_of, rows, shift_clock
from tidemill.domain.errors import Conflict
from tidemill.domain.item import Item
from tidemill.domain.status import JobStatus
from tidemill.engine import janitor
from tidemill.engine.janitor import Janitor
from tidemill.handlers import export_table
from tidemill.operations import control
from tidemill.operations.export import export_facts, export_file
from tidemill.store.extract import copy_out
from tidemill.telemetry.events import subscribe
from tidemill.testing import drain


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    return await with_people(scene)


async def test_a_file_is_what_is_said_of_it(scene: Scene) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    end = subscribe(lambda name, fields: told.append((name, fields)))
    job = await scene.made("people", "id[lte]=10")
    end()
    assert job.status is JobStatus.COMPLETED
    found = await export_file(scene.db, scene.blobs, job)
    with found.file as file:
        data = file.read()
    assert lines(data)[:2] == ["id,name", "1,name 1"]
    assert found.name == f"public_people-{job.key}.csv"
    assert (found.size, found.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    made = await scene.result(job.id)
    assert (made["rows"], made["format"], made["compression"], made["spreadsheet_safe"]) == (10, "csv", "none", False)
    [event] = [fields for name, fields in told if name == "export.completed"]
    assert (event["job"], event["resource_type"], event["total_records"]) == (job.id, "public.people", 10)
    await assert_sound(scene.db, job.id)


async def test_a_table_that_is_gone_or_another_one_fails_the_export_with_a_reason(scene: Scene) -> None:
    first, second = await scene.submit("people"), await scene.submit("people", fields=("id",))
    await scene.run("ALTER TABLE people RENAME COLUMN name TO title")
    await drain(scene.mill, db=scene.db)
    failed = await job_of(scene.db, first)
    assert failed.status is JobStatus.FAILED
    with pytest.raises(Conflict, match=r"t\.name does not exist"):
        await export_facts(scene.db, failed)
    assert (await job_of(scene.db, second)).status is JobStatus.COMPLETED, "it has all that it was asked for"
    assert scene.stored() == [await file_of(scene.db, second)]


async def test_a_cancelled_export_leaves_no_file(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export_table, "LOOK_EVERY_S", 0.0)
    job_id = await scene.submit("people")
    wanted = asyncio.Event()

    async def slow(db: Any, query: str, feed: Any, sink: Any) -> int:
        async def late(chunk: bytes) -> None:
            await control.cancel(scene.db, job_id)
            wanted.set()
            await sink(chunk)

        return await copy_out(db, query, feed, late)

    monkeypatch.setattr(export_table, "copy_out", slow)
    await drain(scene.mill, db=scene.db)
    assert wanted.is_set()
    job = await job_of(scene.db, job_id)
    assert job.status is JobStatus.CANCELLED
    assert job.counts.cancelled == 1
    assert scene.stored() == []
    await eventually(scene.is_quiet)
    await assert_sound(scene.db, job_id)


async def test_a_file_expires_and_the_janitor_removes_it(scene: Scene) -> None:
    job = await scene.made("people")
    expires_at = datetime.fromisoformat((await scene.result(job.id))["expires_at"])
    assert job.created_at is not None
    assert 167 < (expires_at - job.created_at).total_seconds() / 3600 < 169
    cleaner, file_id = Janitor(scene.db, scene.blobs), await file_of(scene.db, job.id)
    assert await cleaner.clean() == []
    await shift_clock(scene.db, "8 days")
    with pytest.raises(Conflict, match="has expired"):
        await export_facts(scene.db, job)
    assert await cleaner.clean() == [file_id]
    assert scene.stored() == []


async def test_a_file_whose_maker_died_before_it_could_tell_goes_too(scene: Scene) -> None:
    job_id = await scene.submit("people")
    exporter = export_table.TableExporter(scene.db, scene.blobs, ttl_hours=1)
    [(input_,)] = await rows(scene.db, "SELECT input FROM tidemill.item WHERE job_id = %s", job_id)
    made = await exporter.run(Item(job_id, 0, input_))
    await control.delete(scene.db, job_id)
    assert await Janitor(scene.db, scene.blobs).clean() == [made["file_id"]]


async def test_the_file_has_the_rows_of_one_moment(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that change while it is written are in it as they were, or as they have become: never some of each."""
    await scene.run("INSERT INTO people SELECT n, repeat('x', 900) FROM generate_series(1001, 8000) n")
    chunks = 0

    async def disturbed(db: Any, query: str, feed: Any, sink: Any) -> int:
        async def late(chunk: bytes) -> None:
            nonlocal chunks
            chunks += 1
            if chunks == 1:
                await scene.run("UPDATE people SET name = 'later'", "DELETE FROM people WHERE id > 7000")
            await sink(chunk)

        return await copy_out(db, query, feed, late)

    monkeypatch.setattr(export_table, "copy_out", disturbed)
    job = await scene.made("people")
    assert chunks > 1
    with (await export_file(scene.db, scene.blobs, job)).file as file:
        data = file.read()
    assert data.count(b"\n") == 8001
    assert b"later" not in data


async def test_an_export_that_is_cancelled_when_its_file_is_complete_has_none_either(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = await scene.submit("people")
    insist = export_table.TableExporter._insist

    async def cancelled_after(exporter: export_table.TableExporter, export_id: UUID) -> None:
        await insist(exporter, export_id)
        await control.cancel(scene.db, job_id)

    monkeypatch.setattr(export_table.TableExporter, "_insist", cancelled_after)
    await drain(scene.mill, db=scene.db)
    job = await job_of(scene.db, job_id)
    assert (job.status, job.counts.done) == (JobStatus.CANCELLED, 1)
    with pytest.raises(Conflict, match="is cancelled; it has no file"):
        await export_facts(scene.db, job)
    assert await Janitor(scene.db, scene.blobs).clean() == [await file_of(scene.db, job_id)]


async def test_files_that_are_nowhere_do_not_hide_others_from_the_janitor(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await scene.made("people")
    monkeypatch.setattr(janitor, "AT_ONCE", 2)
    await scene.run(
        "INSERT INTO tidemill.unneeded_file (file_id, at)"
        " SELECT lpad(n::text, 32, '0'), tidemill.now() - interval '1 day' FROM generate_series(1, 5) n"
    )
    file_id = await file_of(scene.db, job.id)
    await control.delete(scene.db, job.id)
    assert await Janitor(scene.db, scene.blobs).clean() == [file_id]
