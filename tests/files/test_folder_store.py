"""Behaviour of the folder store: paths stay inside the root, and empty folders are removed."""

import errno
import hashlib
import os
import resource
import stat
import threading
from pathlib import Path

import pytest

from support import blob_stores as stores
from tidemill.core.errors import InvalidInput, StorageUnavailable
from tidemill.files.blobs import folder_store, open_blob_store
from tidemill.files.blobs.folder_store import FolderBlobStore


@pytest.fixture
def folder(tmp_path: Path) -> FolderBlobStore:
    return stores.folder(tmp_path)


def test_folder_store_rejects_symlinks_leading_outside(folder: FolderBlobStore, tmp_path: Path) -> None:
    folder.put([b"x"], "right")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("mine")
    (folder.scratch_folder / "way").symlink_to(tmp_path / "outside")
    (folder.scratch_folder / "file").symlink_to(tmp_path / "outside" / "secret")
    for name in ("way/secret", "file"):
        for use in (folder.open, folder.has, folder.remove, folder.size, folder.url):
            with pytest.raises(InvalidInput, match="is outside the blob store folder"):
                use(name)
    with pytest.raises(InvalidInput, match="is outside the blob store folder"):
        folder.put([b"evil"], "way/new")
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_folder_store_root_may_be_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    blobs = FolderBlobStore(tmp_path / "link")
    blobs.put([b"x"], "a/b")
    assert (tmp_path / "real" / "a" / "b").read_bytes() == b"x"


def test_folder_store_rejects_name_that_conflicts_with_file_or_folder(folder: FolderBlobStore) -> None:
    folder.put([b"x"], "a/b")
    with pytest.raises(InvalidInput, match="a parent folder in this name is a file"):
        folder.put([b"y"], "a/b/c")
    with pytest.raises(InvalidInput, match="it is a folder"):
        folder.put([b"y"], "a")
    assert (list(folder.list_names()), list(folder.scratch_folder.glob("*.tmp"))) == (["a/b"], [])
    assert not folder.has("a")
    assert not folder.has("a/b/c")


def test_folder_store_removes_empty_folders_under_concurrent_writes(folder: FolderBlobStore) -> None:
    def churn(name: str) -> None:
        for _ in range(40):
            folder.put([b"x"], f"a/b/c/{name}")
            folder.remove(f"a/b/c/{name}")

    threads = [threading.Thread(target=churn, args=(f"{n}.csv",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert list(folder.scratch_folder.iterdir()) == []


def test_folder_store_has_file_urls_but_no_presigned_links(folder: FolderBlobStore) -> None:
    assert folder.url("a/b.csv") == f"file://{folder.scratch_folder}/a/b.csv"
    assert folder.presign_url("a/b.csv", 60) is None


def test_open_blob_store_returns_same_instance_for_same_location(tmp_path: Path) -> None:
    assert open_blob_store(str(tmp_path)) is open_blob_store(str(tmp_path))
    assert open_blob_store(f"file://{tmp_path}").url("x") == f"file://{tmp_path}/x"


def test_folder_store_full_disk_raises_and_leaves_nothing(folder: FolderBlobStore) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    folder.put([b"x"], "small")
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
        with pytest.raises(StorageUnavailable, match="Cannot write to the blob store folder: File too large"):
            folder.put([b"x" * 70_000] * 3, "large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [path.name for path in folder.scratch_folder.iterdir()] == ["small"]


def test_folder_store_root_that_is_a_file_raises_store_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for place in ("file", "file/below"):
        with pytest.raises(StorageUnavailable, match="Cannot write to the blob store folder"):
            FolderBlobStore(tmp_path / place).put([b"x"])


def test_background_sync_writes_complete_file_and_ends_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_store, "SYNC_STEP_BYTES", 1_000)
    data = bytes(range(256)) * 200
    store = FolderBlobStore(tmp_path)
    with store.open_writer("long") as writing:
        for at in range(0, len(data), 300):
            writing.write(data[at : at + 300])
        blob = writing.finish()
    assert store.path("long").read_bytes() == data
    assert blob.sha256 == hashlib.sha256(data).digest()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("sync")]


def test_background_sync_error_raises_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(folder_store, "SYNC_STEP_BYTES", 10)
    monkeypatch.setattr(folder_store, "_fdatasync", fails)
    store = FolderBlobStore(tmp_path)
    with store.open_writer("lost") as writing:
        writing.write(b"x" * 100)  # the disk error is raised at the end at the latest
        with pytest.raises(StorageUnavailable, match="Input/output error"):
            writing.finish()
    assert not list(tmp_path.iterdir())


def test_folder_store_creates_files_and_folders_for_its_user_only(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        store = FolderBlobStore(tmp_path / "home" / "blobs")
        store.put(iter([b"secret"]), "daily/report.csv")
        store.copy("daily/report.csv", "copies/report.csv")
    finally:
        os.umask(umask)
    paths = sorted((tmp_path / "home").rglob("*"))
    assert {path.name for path in paths} == {"blobs", "daily", "copies", "report.csv"}
    assert all(stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600) for path in paths)
