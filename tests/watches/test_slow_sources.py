"""Slow sources, interrupted listings, and files without read permission."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.loopback_server import Server
from tidemill.core.errors import Interrupted, RemoteUnreachable, UnknownFile
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.watches.file_state import FileState, ListedFile
from tidemill.watches.sources.folder_source import FolderWatchSource
from tidemill.watches.sources.ftp_source import FtpWatchSource
from tidemill.watches.sources.watch_source import FetchLimits
from tidemill.watches.watch import HostAddress
from watches.file_servers import PASSWORD, USER, Rclone
from watches.scenes import ROWS, Scene
from watches.website import Web, allow


async def test_http_scan_stops_during_listing_when_interrupted(scene: Scene, web: tuple[Web, Server]) -> None:
    _, server = web  # it has none of these files, so the scan checks for interruption without listing a file
    allow(scene, server)
    scene.declare(source=str([server.url(f"/{number}.csv") for number in range(9)]))
    result = (await scene.scan(should_continue=lambda: len(server.requests) < 2)).result
    assert (result.looked, result.problem, result.delay) == (False, None, 0)
    assert len(server.requests) <= 3


def test_ftp_listing_stops_when_interrupted(tmp_path: Path) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (served / "a.csv").write_text(ROWS)
    with (
        Rclone("ftp", served, tmp_path) as server,
        FtpWatchSource(HostAddress("ftp", "127.0.0.1", server.port, USER), PASSWORD) as inlet,
    ):
        assert [one.path for one in inlet.list_files(recursive=True, skip_folders=frozenset())] == ["a.csv"]
        inlet.should_continue = lambda: False
        with pytest.raises(Interrupted):
            inlet.list_children("").__next__()


def test_fetch_of_trickling_file_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trickle(_: FolderWatchSource, __: str) -> Iterator[bytes]:
        yield b"x"
        while True:
            yield b""

    monkeypatch.setattr(FolderWatchSource, "read", trickle)
    blobs = FolderBlobStore(tmp_path / "blobs")
    with pytest.raises(RemoteUnreachable, match="received only 1 bytes"):
        FolderWatchSource(tmp_path, "").fetch_to_blob_store(
            ListedFile("a.csv", None, ""), blobs, "a", FetchLimits(1 << 20, seconds=0.05)
        )


async def test_listed_file_that_cannot_be_read_is_not_marked_gone(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FTP servers return the same code for a missing file and a file without read permission."""

    def unknown(*_: Any) -> Iterator[bytes]:
        raise UnknownFile('"a.csv" does not exist, or permission denied (550)')

    monkeypatch.setattr(FolderWatchSource, "read", unknown)
    scene.declare()
    scene.put("a.csv")
    for _ in range(2):
        result = (await scene.scan(times=2)).result
        assert 'Cannot read "a.csv": permission denied' in str(result.problem)
        assert await scene.states() == {"a.csv": FileState.SEEN}
