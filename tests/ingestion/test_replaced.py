"""Files that are replaced at a bad moment, and markers that outlive their files: what was not read is not put away."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest

from ingestion.scenes import ROWS, Scene
from ingestion.servers import PASSWORD, USER, Rclone
from s3 import S3Server
from tidemill.connectors.inlets import folder
from tidemill.connectors.inlets.base import Inlet
from tidemill.connectors.inlets.bucket import BucketInlet
from tidemill.connectors.inlets.folder import FolderInlet
from tidemill.connectors.inlets.ftp import FtpInlet
from tidemill.connectors.inlets.sftp import Keys, SftpInlet
from tidemill.domain.errors import StoreUnavailable
from tidemill.domain.place import BucketPlace, parse_place
from tidemill.domain.watching import FileState, HostAddress
from tidemill.store import watch_files

NEW = ROWS + "cy@x.org,Cy\n"
MARKED = 'marker = ".done"'


def before(target: Any, name: str, does: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, right before this is called, something happens."""
    real = getattr(target, name)

    def first(*args: Any, **kwargs: Any) -> Any:
        monkeypatch.setattr(target, name, real)
        does()
        return real(*args, **kwargs)

    monkeypatch.setattr(target, name, first)


def replace(path: Path, text: str = NEW) -> None:
    """As careful producers do: written beside, and renamed."""
    beside = path.with_name(".new")
    beside.write_text(text)
    beside.replace(path)


@pytest.mark.parametrize(
    ("target", "name"),
    [(watch_files, "reserve"), (FolderInlet, "rename"), (folder, "rename_to_free"), (folder, "sync_folder")],
)
async def test_a_file_that_is_replaced_while_the_old_one_is_put_away_has_its_own_turn(
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


def remote(protocol: str, folder_: Path, server: Rclone) -> Inlet:
    address = HostAddress(protocol, "127.0.0.1", server.port, USER)
    if protocol == "ftp":
        return FtpInlet(address, PASSWORD)
    (folder_ / "known_hosts").write_text(server.known_hosts)
    return SftpInlet(address, Keys(folder_ / "known_hosts", PASSWORD))


@pytest.mark.parametrize(("protocol", "call"), [("ftp", "_make_folders"), ("sftp", "rename")])
def test_on_a_server_too_another_version_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str, call: str
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "a.csv").write_text(ROWS)
    with Rclone(protocol, served, tmp_path) as server, remote(protocol, tmp_path, server) as inlet:
        entry = inlet.look("a.csv")
        assert entry is not None
        before(type(inlet), call, lambda: replace(served / "a.csv"), monkeypatch)
        assert not inlet.move(entry, "processed/a.csv")
        assert (served / "a.csv").read_text() == NEW
        assert not (served / "processed" / "a.csv").exists()
        entry = inlet.look("a.csv")
        assert entry is not None
        assert inlet.move(entry, "processed/a.csv")
        assert inlet.move(entry, "processed/a.csv"), "what is done already is done"


def test_in_a_bucket_too_another_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(tmp_path) as server:
        keys = {"access_key_id": server.key, "secret_access_key": server.secret, "endpoint": server.endpoint}
        place = parse_place(server.place("in"))
        assert isinstance(place, BucketPlace)
        inlet = BucketInlet(place, keys | {"region": "us-east-1"})
        obstore.put(inlet._store, "in/a.csv", ROWS.encode())
        entry = inlet.look("a.csv")
        assert entry is not None
        look, looks = inlet.look, 0

        def second(name: str) -> Any:
            nonlocal looks
            looks += 1
            if looks == 2:
                obstore.put(inlet._store, "in/a.csv", NEW.encode())
            return look(name)

        monkeypatch.setattr(inlet, "look", second)
        assert not inlet.move(entry, "processed/a.csv")
        assert (b"".join(inlet.read("a.csv")).decode(), look("processed/a.csv")) == (NEW, None)


async def test_a_marker_that_could_not_be_put_away_makes_nothing_whole(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    await scene.scan()
    await scene.work()
    move = FolderInlet.move

    def failing(self: FolderInlet, entry: Any, to: str) -> bool:
        if entry.path.endswith(".done"):
            raise StoreUnavailable("it is away for a moment")
        return move(self, entry, to)

    monkeypatch.setattr(FolderInlet, "move", failing)
    assert "away for a moment" in str((await scene.scan()).came.problem)
    assert scene.there() == ["a.csv.done", "processed/a.csv"]
    scene.put("a.csv", ROWS[:20], mtime=2_000)
    assert (await scene.scan()).came.submitted == 0, "half of the next one"
    monkeypatch.setattr(FolderInlet, "move", move)
    (scene.inbox / "a.csv").unlink()
    await scene.scan()
    scene.put("a.csv", NEW, mtime=2_000)
    assert (await scene.scan()).came.submitted == 0
    scene.put("a.csv.done", b"")
    assert (await scene.scan()).came.submitted == 1


async def test_the_marker_of_the_version_before_makes_nothing_whole(scene: Scene) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    assert (await scene.scan()).came.submitted == 1
    scene.put("a.csv", ROWS[:20], mtime=2_000)
    await scene.scan()
    assert "older" in str((await scene.files())["a.csv"].note)
    await scene.work()
    await scene.scan()
    assert await scene.jobs() == 1
    scene.put("a.csv", NEW, mtime=2_001)
    scene.put("a.csv.done", b"", mtime=2_001)
    assert (await scene.scan()).came.submitted == 1
    await scene.work()
    await scene.scan()
    assert scene.there() == ["processed/a.csv", "processed/a.csv.done"]


async def test_a_marker_that_is_replaced_while_it_is_put_away_is_the_next_files(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.declare(MARKED)
    scene.put("a.csv", mtime=1_000)
    scene.put("a.csv.done", b"", mtime=1_000)
    await scene.scan()
    await scene.work()
    move = FolderInlet.move

    def late(self: FolderInlet, entry: Any, to: str) -> bool:
        if entry.path.endswith(".done"):
            scene.put("a.csv", NEW, mtime=2_000)
            scene.put("a.csv.done", b"", mtime=2_000)
        return move(self, entry, to)

    monkeypatch.setattr(FolderInlet, "move", late)
    assert (await scene.scan()).came.submitted == 1
    assert scene.there() == ["a.csv", "a.csv.done", "processed/a.csv"]
