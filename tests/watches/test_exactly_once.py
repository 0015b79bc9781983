"""Each file is submitted exactly once: after crashes, with concurrent scanners, and if the file changes."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from support import Workers, eventually, rows, until
from tidemill.core.errors import Busy
from tidemill.engine.maintenance_loop import MaintenanceLoop
from tidemill.store import job_lifecycle
from tidemill.store.retention import delete_job
from tidemill.watches import watch_records
from tidemill.watches.file_archiver import FileArchiver
from tidemill.watches.file_state import FileState
from tidemill.watches.file_submitter import WatchFileSubmitter
from tidemill.watches.sources import folder_source
from tidemill.watches.sources.folder_source import FolderWatchSource
from tidemill.watches.sources.watch_source import FetchLimits
from watches.scenes import Died, Scene, dies_at

PROCESSED, FAILED, SEEN = FileState.PROCESSED, FileState.FAILED, FileState.SEEN
CRASHES: dict[str, tuple[Any, str, bool]] = {
    "before the listing is recorded": (watch_records, "record_new_and_changed_files", False),
    "after the listing is recorded": (watch_records, "record_new_and_changed_files", True),
    "after it is claimed": (watch_records, "claim_file", True),
    "before it is fetched": (FolderWatchSource, "fetch_to_blob_store", False),
    "after it is fetched": (FolderWatchSource, "fetch_to_blob_store", True),
    "before it is submitted": (WatchFileSubmitter, "_submit_blob", False),
    "after it is submitted": (watch_records, "mark_file_submitted", False),
    "after the submission is recorded": (watch_records, "mark_file_submitted", True),
    "before it is moved": (FolderWatchSource, "move", False),
    "after its archive path is reserved": (watch_records, "reserve_archive_path", True),
    "while it is moved": (folder_source, "rename_without_overwrite", True),
    "after it is moved": (FolderWatchSource, "move", True),
}
WITH_A_MARKER: dict[str, tuple[Any, str, bool]] = {
    "before its marker is moved": (FileArchiver, "_move_marker", False),
    "while it is moved": (folder_source, "rename_without_overwrite", True),
    "after its marker is moved": (FileArchiver, "_move_marker", True),
}


@pytest.mark.parametrize("crash", CRASHES)
async def test_scanner_crash_at_any_point_submits_file_exactly_once(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    scene.declare()
    scene.put("a.csv")
    await dies_once(scene, monkeypatch, CRASHES[crash])
    assert await scene.states() == {"a.csv": PROCESSED}
    assert scene.there() == ["processed/a.csv"]
    assert (await scene.jobs(), len(await scene.items())) == (1, 2)
    kept = scene.stored()
    needed = {row[0] for row in await rows(scene.db, "SELECT file_id FROM tidemill.job")}
    expiring = {row[0] for row in await rows(scene.db, "SELECT file_id FROM tidemill.unneeded_file")}
    assert needed <= kept <= needed | expiring, "files left by a crash are registered for deletion"
    assert not needed & expiring


@pytest.mark.parametrize("crash", WITH_A_MARKER)
async def test_scanner_crash_at_any_point_archives_marker_with_its_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    scene.declare('marker = ".done"')
    scene.put("a.csv")
    scene.put("a.csv.done", b"")
    await dies_once(scene, monkeypatch, WITH_A_MARKER[crash])
    assert await scene.states() == {"a.csv": PROCESSED}
    assert scene.there() == ["processed/a.csv", "processed/a.csv.done"]
    assert await scene.jobs() == 1


async def dies_once(scene: Scene, monkeypatch: pytest.MonkeyPatch, crash: tuple[Any, str, bool]) -> None:
    """Scan and work until all files are archived. One scan crashes at the given point."""
    died = 0
    for _ in range(4):
        if not died:
            target, name, after = crash
            dies_at(target, name, monkeypatch, after=after)
        try:
            await scene.scan()
        except Died:
            died += 1
        finally:
            monkeypatch.undo()
        await its_lease_runs_out(scene)
        await scene.work()
    assert died == 1
    await scene.scan(times=2)


async def its_lease_runs_out(scene: Scene) -> None:
    await rows(scene.db, "UPDATE tidemill.watch SET lease_until = '-infinity' WHERE lease_id IS NOT NULL")


async def test_concurrent_scanners_submit_each_file_once(scene: Scene) -> None:
    scene.declare('every = "1s"')
    for number in range(20):
        scene.put(f"{number}.csv")
    await scene.scan()
    scanners = [scene.scanner(f"w{number}") for number in range(4)]
    for _ in range(3):
        await rows(scene.db, "UPDATE tidemill.watch SET due_at = tidemill.now()")
        await asyncio.gather(*(scanner.scan_due_watch() for scanner in scanners))
    assert await scene.jobs() == 20
    assert len(await scene.files()) == 20


async def test_scan_raises_busy_while_another_scanner_holds_watch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare()
    scene.put("a.csv")
    first, second = scene.scanner("w1"), scene.scanner("w2")
    started, may_continue = asyncio.Event(), asyncio.Event()
    record_new_and_changed_files = watch_records.record_new_and_changed_files

    async def slow(*args: Any) -> None:
        started.set()
        await until(may_continue)
        await record_new_and_changed_files(*args)

    monkeypatch.setattr(watch_records, "record_new_and_changed_files", slow)
    scan = asyncio.create_task(first.scan_watch("nightly"))
    await until(started)
    with pytest.raises(Busy):
        await second.scan_watch("nightly")
    may_continue.set()
    assert (await scan).result.found == 1


async def test_scanner_that_lost_its_lease_creates_no_second_job(scene: Scene) -> None:
    """A worker that was suspended during a file resumes while another worker processes the same file."""
    scene.declare()
    scene.put("a.csv")
    await scene.scan()
    scanner = scene.scanner()
    (file,) = (await scene.files()).values()
    prepared = await scanner._submitter.prepare_watch(scanner.watches["nightly"])
    source, limits = FolderWatchSource(scene.inbox, ""), FetchLimits(1 << 20)
    job_ids = await asyncio.gather(*(scanner._submitter.submit_file(prepared, source, file, limits) for _ in range(3)))
    assert len(set(job_ids) - {None}) == 1
    assert await scene.jobs() == 1


async def test_two_watches_on_one_source_submit_file_once(scene: Scene) -> None:
    scene.declare(name="one")
    scene.declare(name="two")
    scene.put("a.csv")
    for _ in range(3):
        await scene.scan(name="one")
        await scene.scan(name="two")
    assert await scene.jobs() == 1


async def test_renamed_watch_continues_with_its_files(scene: Scene) -> None:
    scene.declare(name="one")
    scene.put("submitted.csv")
    await scene.scan(name="one", times=2)
    scene.put("seen.csv")
    await scene.scan(name="one")
    scene.rename("one", "two")
    assert (await scene.scan(name="two")).result.submitted == 1
    await scene.work()
    await scene.scan(name="two")
    assert await scene.states("two") == {"seen.csv": PROCESSED, "submitted.csv": PROCESSED}
    assert scene.there() == ["processed/seen.csv", "processed/submitted.csv"]
    assert await scene.jobs() == 2


async def test_file_growing_during_read_is_submitted_when_stable(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.declare()
    path = scene.put("a.csv", mtime=1_000)
    read = FolderWatchSource.read

    def growing(self: FolderWatchSource, name: str) -> Iterator[bytes]:
        monkeypatch.undo()
        yield from read(self, name)
        with path.open("a") as file:
            file.write("cy@x.org,Cy\n")

    monkeypatch.setattr(FolderWatchSource, "read", growing)
    assert (await scene.scan(times=2)).result.submitted == 0
    (file,) = (await scene.files()).values()
    assert (file.state, file.note) == (
        SEEN,
        "The file changed while a worker read it. Waiting until the file stops changing",
    )
    await scene.whole_way()
    assert [item["name"] for item in await scene.items()] == ["Ada", "Bob", "Cy"]


async def test_file_vanishing_during_read_is_marked_gone_without_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare()
    path = scene.put("a.csv")
    read = FolderWatchSource.read

    def vanishing(self: FolderWatchSource, name: str) -> Iterator[bytes]:
        yield from read(self, name)
        path.unlink()

    monkeypatch.setattr(FolderWatchSource, "read", vanishing)
    await scene.scan(times=2)
    assert (await scene.states(), await scene.jobs()) == ({"a.csv": FileState.GONE}, 0)


async def test_file_moves_to_failed_when_job_is_cancelled_or_deleted_before_reading(scene: Scene) -> None:
    scene.declare()
    for name in ("cancelled.csv", "deleted.csv"):
        scene.put(name)
    await scene.scan(times=2)
    job_ids = {path: file.job_id or uuid4() for path, file in (await scene.files()).items()}
    await scene.db.run(job_lifecycle.cancel_job, job_ids["cancelled.csv"])
    await scene.db.run(delete_job, job_ids["deleted.csv"])
    await scene.work()
    await scene.scan()
    files = await scene.files()
    assert {file.state for file in files.values()} == {FAILED}
    assert "cancelled" in str(files["cancelled.csv"].note)
    assert "deleted" in str(files["deleted.csv"].note)
    assert scene.there() == ["failed/cancelled.csv", "failed/deleted.csv"]


async def test_file_that_cannot_be_archived_stays_and_is_retried(scene: Scene) -> None:
    scene.declare()
    scene.put("a.csv")
    scene.put("processed", b"a file where a folder should be", mtime=1)
    scene.declare('pattern = "*.csv"')
    report = await scene.whole_way()
    assert 'Cannot archive "a.csv"' in str(report.result.problem)
    assert await scene.states() == {"a.csv": FileState.PERSISTED}
    (scene.inbox / "processed").unlink()
    assert (await scene.scan()).result.problem is None
    assert scene.there() == ["processed/a.csv"]


async def test_maintenance_deletes_records_of_old_moved_files_only(scene: Scene) -> None:
    scene.declare('pattern = "moved*"', name="moves")
    scene.declare('pattern = "stays*"', "moves = false", name="stays")
    for name in ("moved.csv", "moved late.csv", "stays.csv"):
        scene.put(name)
    for name in ("moves", "stays"):
        await scene.scan(name=name, times=2)
        await scene.work()
        await scene.scan(name=name)
    old = "UPDATE tidemill.watch_file SET at = at - interval '91 days' WHERE path <> 'moved late.csv'"
    await rows(scene.db, old)
    maintenance = MaintenanceLoop(scene.db, "w1", housekeeping=[watch_records.forget_old_watch_files])
    await maintenance.tick()
    assert await scene.states("moves") == {"moved late.csv": PROCESSED}
    assert await scene.states("stays") == {"stays.csv": PROCESSED}


async def test_worker_scans_on_schedule_and_another_takes_over_when_killed(scene: Scene, workers: Workers) -> None:
    scene.declare('every = "1s"')
    workers.app('@mill.handler("echo")\nasync def echo(item): return item.input')
    more: dict[str, Any] = {"sources": json.dumps({"inbox": str(scene.inbox)}), "config": scene.settings.config}
    first = workers.start(**more)
    scene.put("a.csv")

    async def is_processed() -> bool:
        return set((await scene.states()).values()) == {PROCESSED}

    await eventually(is_processed)
    for number in range(3):
        scene.put(f"{number}.csv")
    await eventually(lambda: _is_any(scene, FileState.SUBMITTED))
    os.killpg(first.pid, signal.SIGKILL)
    workers.start(**more)
    await eventually(is_processed)
    assert (await scene.jobs(), len(await scene.items())) == (4, 8)
    assert scene.there() == sorted(["processed/a.csv", *(f"processed/{number}.csv" for number in range(3))])


async def _is_any(scene: Scene, state: FileState) -> bool:
    return state in (await scene.states()).values()
