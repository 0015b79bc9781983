"""Files that are replaced during archiving, and stale markers: an unread version is never archived."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest

from support.s3 import S3Server
from tidemill.core.blob_location import BucketLocation, parse_blob_location
from tidemill.core.errors import StorageUnavailable
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState
from tidemill.watches.sources import folder_source
from tidemill.watches.sources.bucket_source import BucketWatchSource
from tidemill.watches.sources.folder_source import FolderWatchSource
from tidemill.watches.sources.ftp_source import FtpWatchSource
from tidemill.watches.sources.sftp_source import SftpCredentials, SftpWatchSource
from tidemill.watches.sources.watch_source import WatchSource
from tidemill.watches.watch import HostAddress
from watches.file_servers import PASSWORD, USER, Rclone
from watches.scenes import ROWS, Scene

NEW = ROWS + "cy@x.org,Cy\n"
MARKED = 'marker = ".done"'


def before(target: Any, name: str, does: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Call ``does`` once, right before the next call of this function."""
    real = getattr(target, name)

    def first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(target, name, real)
        does()
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, first)


def replace(path: Path, text: str = NEW) -> None:
    """Replace a file atomically: write another file and rename it."""
    beside = path.with_name(".new")
    beside.write_text(text)
    beside.replace(path)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (watch_records, "reserve_archive_path"),
        (FolderWatchSource, "rename"),
        (folder_source, "rename_without_overwrite"),
        (folder_source, "sync_folder"),
    ],
)
async def test_file_replaced_during_archiving_is_processed_separately(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, target: Any, name: str
) -> None:
    scene.declare()
    path = scene.put("a.csv", mtime=1_000)
    await scene.scan(times=2)
    await scene.work()
    before(target, name, lambda: replace(path), monkeypatch)
    await scene.scan()
    assert path.read_text() == NEW, "it was not read yet"
    await scene.whole_way()
    assert [item["name"] for item in await scene.items()] == ["Ada", "Bob", "Ada", "Bob", "Cy"]
    assert "processed/a.csv" in scene.there()
    assert set((await scene.states()).values()) == {FileState.PROCESSED}


def remote(protocol: str, folder_: Path, server: Rclone) -> WatchSource:
    address = HostAddress(protocol, "127.0.0.1", server.port, USER)
    if protocol == "ftp":
        return FtpWatchSource(address, PASSWORD)
    (folder_ / "known_hosts").write_text(server.known_hosts)
    return SftpWatchSource(address, SftpCredentials(folder_ / "known_hosts", PASSWORD))


@pytest.mark.parametrize(("protocol", "call"), [("ftp", "_make_parent_folders"), ("sftp", "rename")])
def test_ftp_or_sftp_source_does_not_move_replaced_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, call: str
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "a.csv").write_text(ROWS)
    with Rclone(protocol, served, tmp_path) as server, remote(protocol, tmp_path, server) as inlet:
        entry = inlet.find_file("a.csv")
        assert entry is not None
        before(type(inlet), call, lambda: replace(served / "a.csv"), monkeypatch)
        assert not inlet.move(entry, "processed/a.csv")
        assert (served / "a.csv").read_text() == NEW
        assert not (served / "processed" / "a.csv").exists()
        entry = inlet.find_file("a.csv")
        assert entry is not None
        assert inlet.move(entry, "processed/a.csv")
        assert inlet.move(entry, "processed/a.csv"), "a repeated move succeeds"


def test_bucket_source_does_not_move_replaced_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(tmp_path) as server:
        keys = {"access_key_id": server.key, "secret_access_key": server.secret, "endpoint": server.endpoint}
        place = parse_blob_location(server.blobs_url("in"))
        assert isinstance(place, BucketLocation)
        inlet = BucketWatchSource(place, keys | {"region": "us-east-1"})
        obstore.put(inlet._store, "in/a.csv", ROWS.encode())
        entry = inlet.find_file("a.csv")
        assert entry is not None
        find_file, calls = inlet.find_file, 0

        def replace_before_second_call(name: str) -> Any:
            nonlocal calls
            calls += 1
            if calls == 2:
                obstore.put(inlet._store, "in/a.csv", NEW.encode())
            return find_file(name)

        monkeypatch.setattr(inlet, "find_file", replace_before_second_call)
        assert not inlet.move(entry, "processed/a.csv")
        assert (b"".join(inlet.read("a.csv")).decode(), find_file("processed/a.csv")) == (NEW, None)


async def test_marker_left_by_failed_archiving_does_not_complete_next_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    await scene.scan()
    await scene.work()
    move = FolderWatchSource.move

    def failing(self: FolderWatchSource, entry: Any, to: str) -> bool:
        if entry.path.endswith(".done"):
            raise StorageUnavailable("temporarily unavailable")
        return move(self, entry, to)

    monkeypatch.setattr(FolderWatchSource, "move", failing)
    assert "temporarily unavailable" in str((await scene.scan()).result.problem)
    assert scene.there() == ["a.csv.done", "processed/a.csv"]
    scene.put("a.csv", ROWS[:20], mtime=2_000)
    assert (await scene.scan()).result.submitted == 0, "the next file is incomplete"
    monkeypatch.setattr(FolderWatchSource, "move", move)
    (scene.inbox / "a.csv").unlink()
    await scene.scan()
    scene.put("a.csv", NEW, mtime=2_000)
    assert (await scene.scan()).result.submitted == 0
    scene.put("a.csv.done", b"")
    assert (await scene.scan()).result.submitted == 1


async def test_marker_older_than_file_does_not_complete_it(scene: Scene) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    assert (await scene.scan()).result.submitted == 1
    scene.put("a.csv", ROWS[:20], mtime=2_000)
    await scene.scan()
    assert "older" in str((await scene.files())["a.csv"].note)
    await scene.work()
    await scene.scan()
    assert await scene.jobs() == 1
    scene.put("a.csv", NEW, mtime=2_001)
    scene.put("a.csv.done", b"", mtime=2_001)
    assert (await scene.scan()).result.submitted == 1
    await scene.work()
    await scene.scan()
    assert scene.there() == ["processed/a.csv", "processed/a.csv.done"]


async def test_marker_replaced_during_archiving_belongs_to_next_file(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    await scene.scan()
    await scene.work()
    move = FolderWatchSource.move

    def late(self: FolderWatchSource, entry: Any, to: str) -> bool:
        if entry.path.endswith(".done"):
            scene.put("a.csv", NEW, mtime=2_000)
            scene.put("a.csv.done", b"", mtime=2_000)
        return move(self, entry, to)

    monkeypatch.setattr(FolderWatchSource, "move", late)
    assert (await scene.scan()).result.submitted == 1
    assert scene.there() == ["a.csv", "a.csv.done", "processed/a.csv"]
