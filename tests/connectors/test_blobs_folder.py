"""What only a folder promises: it ends at its root, and it keeps no empty folders."""

import threading
from pathlib import Path

import pytest

from connectors import stores
from tidemill.connectors.blobs import Folder, open_blobs
from tidemill.domain.errors import InvalidInput


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
        for _ in range(100):
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
