"""Sources that take their time, and what they say of files that are not for us."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connectors.servers import Server
from ingestion.scenes import ROWS, Scene
from ingestion.servers import PASSWORD, USER, Rclone
from ingestion.web import Web, allow
from tidemill.connectors.blobs import Folder
from tidemill.connectors.inlets import Bounds
from tidemill.connectors.inlets.folder import FolderInlet
from tidemill.connectors.inlets.ftp import FtpInlet
from tidemill.domain.errors import Interrupted, UnknownFile, Unreachable
from tidemill.domain.watching import Entry, FileState, HostAddress


async def test_a_scan_that_nobody_waits_for_any_more_ends_in_the_middle_of_a_listing(
    scene: Scene, web: tuple[Web, Server]
) -> None:
    _, server = web  # which has none of these files: nothing is listed, and still it is asked between them
    allow(scene, server)
    scene.declare(source=str([server.url(f"/{number}.csv") for number in range(9)]))
    came = (await scene.scan(going_on=lambda: len(server.requests) < 2)).came
    assert (came.looked, came.problem, came.delay) == (False, None, 0)
    assert len(server.requests) <= 3


def test_a_listing_of_a_server_is_broken_off_too(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "a.csv").write_text(ROWS)
    with (
        Rclone("ftp", served, tmp_path) as server,
        FtpInlet(HostAddress("ftp", "127.0.0.1", server.port, USER), PASSWORD) as inlet,
    ):
        assert [one.path for one in inlet.list(deep=True, skip=frozenset())] == ["a.csv"]
        inlet.going_on = lambda: False
        with pytest.raises(Interrupted):
            inlet.children("").__next__()


def test_a_file_that_hardly_comes_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(_: FolderInlet, __: str) -> Iterator[bytes]:
        yield b"x"
        while True:
            yield b""

    monkeypatch.setattr(FolderInlet, "read", trickle)
    blobs = Folder(tmp_path / "blobs")
    with pytest.raises(Unreachable, match="only 1 bytes"):
        FolderInlet(tmp_path, "").fetch(Entry("a.csv", None, ""), blobs, "a", Bounds(1 << 20, seconds=0.05))


async def test_a_file_that_is_there_and_cannot_be_read_has_not_vanished(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an FTP server says it, which has one word for what is not there and what is not for us."""

    def unknown(*_: Any) -> Iterator[bytes]:
        raise UnknownFile("there is no a.csv, or not for us (550)")

    monkeypatch.setattr(FolderInlet, "read", unknown)
    scene.declare()
    scene.put("a.csv")
    for _ in range(2):
        came = (await scene.scan(times=2)).came
        assert "it is there, and not for us" in str(came.problem)
        assert await scene.states() == {"a.csv": FileState.SEEN}
