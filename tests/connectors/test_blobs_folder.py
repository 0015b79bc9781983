"""What only a folder promises: it ends at its root, and it keeps no empty folders."""

import errno
import hashlib
import resource
import threading
from pathlib import Path

import pytest

from connectors import stores
from tidemill.connectors.blobs import Folder, open_blobs, sync
from tidemill.domain.errors import InvalidInput, StoreUnavailable


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return stores.folder(tmp_path)


def test_links_lead_nowhere(folder: Folder, tmp_path: Path) -> None:
    folder.put([b"x"], "right")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("mine")
    (folder.scratch / "way").symlink_to(tmp_path / "outside")
    (folder.scratch / "file").symlink_to(tmp_path / "outside" / "secret")
    for name in ("way/secret", "file"):
        for use in (folder.open, folder.has, folder.remove, folder.size, folder.url):
            with pytest.raises(InvalidInput, match="leads out of the folder"):
                use(name)
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        folder.put([b"evil"], "way/new")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_a_folder_that_is_a_link_itself_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    blobs = Folder(tmp_path / "link")
    blobs.put([b"x"], "a/b")
    assert (tmp_path / "real" / "a" / "b").read_bytes() == b"x"


def test_a_file_and_a_folder_cannot_have_one_name(folder: Folder) -> None:
    folder.put([b"x"], "a/b")
    with pytest.raises(InvalidInput, match="a part of it is a file"):
        folder.put([b"y"], "a/b/c")
    with pytest.raises(InvalidInput, match="is a folder"):
        folder.put([b"y"], "a")
    assert (list(folder.list_names()), list(folder.scratch.glob("*.tmp"))) == (["a/b"], [])
    assert not folder.has("a")
    assert not folder.has("a/b/c")


def test_the_last_file_takes_its_folders_along_while_others_are_written(folder: Folder) -> None:
    def churn(name: str) -> None:
        for _ in range(40):
            folder.put([b"x"], f"a/b/c/{name}")
            folder.remove(f"a/b/c/{name}")

    threads = [threading.Thread(target=churn, args=(f"{n}.csv",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(folder.scratch.iterdir()) == []


def test_its_files_have_addresses_but_no_links(folder: Folder) -> None:
    assert folder.url("a/b.csv") == f"file://{folder.scratch}/a/b.csv"
    assert folder.presigned("a/b.csv", 60) is None


def test_a_process_has_one_store_for_a_place(tmp_path: Path) -> None:
    assert open_blobs(str(tmp_path)) is open_blobs(str(tmp_path))
    assert open_blobs(f"file://{tmp_path}").url("x") == f"file://{tmp_path}/x"


def test_a_disk_that_is_full_is_told_of_and_nothing_stays(folder: Folder) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.put([b"x"], "small")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(StoreUnavailable, match="the folder of stored files cannot be written: File too large"):
            folder.put([b"x" * 70_000] * 3, "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in folder.scratch.iterdir()] == ["small"]


def test_a_place_that_is_no_folder_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        with pytest.raises(StoreUnavailable, match="the folder of stored files cannot be written"):
            Folder(tmp_path / place).put([b"x"])


def test_what_is_synced_while_it_is_written_is_whole_and_synced_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "STEP", 1_000)
    data = bytes(range(256)) * 200
    store = Folder(tmp_path)
    with store.write("long") as writing:
        for at in range(0, len(data), 300):
            writing.write(data[at : at + 300])
        blob = writing.finish()
    assert store.path("long").read_bytes() == data
    assert blob.sha256 == hashlib.sha256(data).digest()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sync")]


def test_a_disk_that_fails_while_a_file_is_written_is_told_of_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sync, "STEP", 10)
    monkeypatch.setattr(sync, "_sync", fails)
    store = Folder(tmp_path)
    with store.write("lost") as writing:
        writing.write(b"x" * 100)  # what the disk says of it is heard at the end at the latest
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            writing.finish()
    assert not list(tmp_path.iterdir())
