"""Behaviour of every blob store: names, complete files, seeks, copies and lists."""

import contextlib
import functools
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import blob_stores as stores
from support.blob_stores import names
from support.s3 import S3Server
from tidemill.core.errors import InvalidInput, UnknownFile
from tidemill.files.blobs.blob_store import BlobStore

KEY = "exports/2026/11/15/J20261115_000777/AAPL.csv"
LARGE_LINES = 2_400_000  # 19 MB: three parts


@functools.cache
def large() -> bytes:
    """Return numbered lines of 8 bytes, created on first use and not during collection."""
    return b"".join(b"%07d\n" % n for n in range(LARGE_LINES))


@pytest.fixture(params=["folder", "s3", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return stores.bucket(server, tmp_path)
    return stores.folder(tmp_path) if request.param == "folder" else stores.memory(tmp_path)


def test_blob_put_returns_size_and_hash_and_reads_back(store: BlobStore) -> None:
    blob = store.put([b"one", b"", b"two"])
    with store.open(blob.id) as file:
        assert file.read() == b"onetwo"
    assert (blob.size, blob.sha256) == (6, hashlib.sha256(b"onetwo").digest())
    assert (store.size(blob.id), store.read_size_and_hash(blob.id)) == (6, blob)
    assert len(blob.id) == 32


def test_blob_put_of_same_bytes_twice_creates_two_files(store: BlobStore) -> None:
    assert store.put([b"x"]).id != store.put([b"x"]).id


def test_blob_put_without_chunks_stores_empty_file(store: BlobStore) -> None:
    blob = store.put([])
    with store.open(blob.id) as file:
        assert file.read() == b""
    assert (blob.size, store.has(blob.id), store.size(blob.id)) == (0, True, 0)


def test_large_blob_is_stored_completely_and_is_seekable(store: BlobStore, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(large())
    blob = store.put_file(path, KEY)
    assert (blob.id, blob.size, blob.sha256) == (KEY, len(large()), hashlib.sha256(large()).digest())
    with store.open(KEY) as file:
        assert file.seekable()
        assert file.seek(-8, io.SEEK_END) == len(large()) - 8
        assert file.read() == large()[-8:]
        assert file.read(1) == b""
        file.seek(8 * 1_000_000)
        assert file.readline() == b"1000000\n"
        file.seek(16, io.SEEK_CUR)
        assert file.readline() == b"1000003\n"
        file.seek(0)
        assert hashlib.sha256(file.read()).digest() == blob.sha256
        file.seek(len(large()) + 100)
        assert file.read() == b""


def test_zip_blob_members_are_read_in_any_order(store: BlobStore) -> None:
    with store.open_writer() as writing:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number in range(100):
                archive.writestr(f"{number}.txt", b"%d" % number * 5_000)
        writing.write(buffer.getvalue())
        blob = writing.finish()
    with store.open(blob.id) as file, zipfile.ZipFile(file) as archive:
        assert archive.read("73.txt") == b"73" * 5_000
        assert archive.read("3.txt") == b"3" * 5_000


@pytest.mark.parametrize("size", [3, 8 * LARGE_LINES])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_blob_put_interrupted_leaves_no_file(store: BlobStore, error: type[BaseException], size: int) -> None:
    def broken() -> Iterator[bytes]:
        yield large()[:size]
        raise error

    with pytest.raises(error):
        store.put(broken(), KEY)
    assert not store.has(KEY)
    assert names(store) == []


def test_blob_is_invisible_until_finished(store: BlobStore) -> None:
    with store.open_writer(KEY) as writing:
        for start in range(0, len(large()), 1 << 20):
            writing.write(large()[start : start + (1 << 20)])
        assert (store.has(KEY), names(store)) == (False, [])
        blob = writing.finish()
    assert (store.read_size_and_hash(KEY), names(store)) == (blob, [KEY])


def test_blob_discard_removes_finished_file_and_ignores_later_writes(store: BlobStore) -> None:
    writing = store.open_writer(KEY)
    writing.write(b"x")
    writing.finish()
    writing.discard()
    assert writing.write(b"more") == 4
    assert names(store) == []
    unfinished = store.open_writer(KEY)
    unfinished.discard()
    assert unfinished.write(b"more") == 4
    unfinished.discard()
    assert names(store) == []


def test_blob_write_replaces_existing_file_only_when_finished(store: BlobStore) -> None:
    store.put([b"first"], KEY)
    with store.open_writer(KEY) as writing:
        writing.write(b"second")
        with store.open(KEY) as file:
            assert file.read() == b"first"
        writing.finish()
    with store.open(KEY) as file:
        assert file.read() == b"second"


def test_blob_copy_survives_removal_of_original(store: BlobStore) -> None:
    store.put([b"content"], KEY)
    linked = store.copy_and_hash(KEY)
    assert (linked.size, linked.sha256) == (7, hashlib.sha256(b"content").digest())
    store.copy(KEY, "other/copy.csv")
    store.copy(KEY, "other/copy.csv")
    store.remove(KEY)
    assert names(store) == sorted([linked.id, "other/copy.csv"])
    with store.open("other/copy.csv") as file:
        assert file.read() == b"content"


def test_missing_blob_raises_unknown_file_but_can_be_removed_again(store: BlobStore) -> None:
    store.put([b"x"], KEY)
    store.remove(KEY)
    store.remove(KEY)
    store.try_remove(KEY)
    assert not store.has(KEY)
    for ask in (store.open, store.size, store.copy_and_hash, store.read_size_and_hash):
        with pytest.raises(UnknownFile, match=f'has no file "{KEY}"'):
            ask(KEY)


def test_scratch_file_is_published_unless_blob_name_exists(store: BlobStore) -> None:
    made = store.scratch_folder / "made.tmp"
    made.parent.mkdir(parents=True, exist_ok=True)
    for content in (b"first", b"later"):
        made.write_bytes(content)
        blob = store.publish_scratch_file(made, KEY)
        made.unlink(missing_ok=True)
        assert blob.sha256 == hashlib.sha256(b"first").digest()
    with pytest.raises(FileNotFoundError):
        store.publish_scratch_file(made, "a/new.csv")


def test_remove_many_removes_and_returns_only_existing_blobs(store: BlobStore) -> None:
    mine = [store.put([b"x"]).id, store.put([b"y"], KEY).id]
    kept = store.put([b"z"]).id
    assert store.remove_many([*mine, "0" * 32, "../etc", "", "no/such/file.csv"]) == mine
    assert names(store) == [kept]
    assert store.remove_many([]) == []


def test_list_names_returns_only_blobs_below_folder(store: BlobStore) -> None:
    for name in ("a/b/1.csv", "a/b/2.csv", "a/bc/3.csv", "d.csv"):
        store.put([b"x"], name)
    assert sorted(store.list_names("a/b")) == ["a/b/1.csv", "a/b/2.csv"]
    assert sorted(store.list_names("a")) == ["a/b/1.csv", "a/b/2.csv", "a/bc/3.csv"]
    assert list(store.list_names("nowhere")) == []
    assert len(names(store)) == 4


@pytest.mark.parametrize(
    "name",
    [
        *("..", "../secret", "/etc/passwd", "a/../b", "a//b", "a/", "/a", "a/./b", ".hidden", "a/.hidden", "half.tmp"),
        *("a\n", "a\0b", "a b", "a\\b", "a?b", "a%2e", "ä.csv", "a" * 201, "/".join(["a" * 99] * 10)),
    ],
)
def test_blob_store_rejects_invalid_names(store: BlobStore, tmp_path: Path, name: str) -> None:
    (tmp_path / "deep").mkdir(exist_ok=True)
    (tmp_path / "deep" / "secret").write_text("mine")
    store.put([b"x"], "right")
    for use in (
        store.open,
        store.has,
        store.size,
        store.remove,
        store.open_writer,
        store.copy_and_hash,
        store.url,
        store.try_remove,
    ):
        with pytest.raises(InvalidInput, match="Invalid name for a stored file"):
            use(name)
    with pytest.raises(InvalidInput):
        store.copy("right", name)
    assert (tmp_path / "deep" / "secret").read_text() == "mine"


def test_remove_stale_deletes_old_temporary_files_from_scratch_folder(store: BlobStore) -> None:
    half = store.scratch_folder / "half.tmp"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_bytes(b"x")
    with contextlib.closing(store.scratch_folder.joinpath("half.tmp").open("rb")):
        assert store.remove_stale_scratch_files(3_600) == []
        assert store.remove_stale_scratch_files(-60) == ["half.tmp"]
    assert not half.exists()
