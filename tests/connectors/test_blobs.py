"""What every store of files promises: names, whole files, places within them, copies, lists."""

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors import stores
from connectors.stores import names
from s3 import S3Server
from tidemill.connectors.blobs import Blobs
from tidemill.domain.errors import InvalidInput, UnknownFile

KEY = "exports/2026/11/15/J20261115_000777/AAPL.csv"
LARGE = b"".join(b"%07d\n" % n for n in range(2_400_000))  # 19 MB: three parts


@pytest.fixture(params=["folder", "s3", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return stores.bucket(server, tmp_path)
    return stores.folder(tmp_path) if request.param == "folder" else stores.memory(tmp_path)


def test_what_is_put_is_got_back_with_its_size_and_hash(store: Blobs) -> None:
    blob = store.put([b"one", b"", b"two"])
    with store.open(blob.id) as file:
        assert file.read() == b"onetwo"
    assert (blob.size, blob.sha256) == (6, hashlib.sha256(b"onetwo").digest())
    assert (store.size(blob.id), store.look(blob.id)) == (6, blob)
    assert len(blob.id) == 32


def test_the_same_bytes_twice_are_two_files(store: Blobs) -> None:
    assert store.put([b"x"]).id != store.put([b"x"]).id


def test_an_empty_file_is_a_file(store: Blobs) -> None:
    blob = store.put([])
    with store.open(blob.id) as file:
        assert file.read() == b""
    assert (blob.size, store.has(blob.id), store.size(blob.id)) == (0, True, 0)


def test_a_large_file_is_stored_whole_and_read_from_any_place(store: Blobs, tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(LARGE)
    blob = store.put_file(path, KEY)
    assert (blob.id, blob.size, blob.sha256) == (KEY, len(LARGE), hashlib.sha256(LARGE).digest())
    with store.open(KEY) as file:
        assert file.seekable()
        assert file.seek(-8, io.SEEK_END) == len(LARGE) - 8
        assert file.read() == LARGE[-8:]
        assert file.read(1) == b""
        file.seek(8 * 1_000_000)
        assert file.readline() == b"1000000\n"
        file.seek(16, io.SEEK_CUR)
        assert file.readline() == b"1000003\n"
        file.seek(0)
        assert hashlib.sha256(file.read()).digest() == blob.sha256
        file.seek(len(LARGE) + 100)
        assert file.read() == b""


def test_an_archive_is_read_where_it_is(store: Blobs) -> None:
    with store.write() as writing:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number in range(100):
                archive.writestr(f"{number}.txt", b"%d" % number * 5_000)
        writing.write(buffer.getvalue())
        blob = writing.finish()
    with store.open(blob.id) as file, zipfile.ZipFile(file) as archive:
        assert archive.read("73.txt") == b"73" * 5_000
        assert archive.read("3.txt") == b"3" * 5_000


@pytest.mark.parametrize("size", [3, len(LARGE)])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_stream_that_breaks_leaves_nothing(store: Blobs, error: type[BaseException], size: int) -> None:
    def broken() -> Iterator[bytes]:
        yield LARGE[:size]
        raise error

    with pytest.raises(error):
        store.put(broken(), KEY)
    assert not store.has(KEY)
    assert names(store) == []


def test_nothing_can_be_seen_before_it_is_whole(store: Blobs) -> None:
    with store.write(KEY) as writing:
        for start in range(0, len(LARGE), 1 << 20):
            writing.write(LARGE[start : start + (1 << 20)])
        assert (store.has(KEY), names(store)) == (False, [])
        blob = writing.finish()
    assert (store.look(KEY), names(store)) == (blob, [KEY])


def test_what_is_discarded_is_gone_even_when_it_was_finished_and_later_pieces_do_no_harm(store: Blobs) -> None:
    writing = store.write(KEY)
    writing.write(b"x")
    writing.finish()
    writing.discard()
    assert writing.write(b"more") == 4
    assert names(store) == []
    unfinished = store.write(KEY)
    unfinished.discard()
    assert unfinished.write(b"more") == 4
    unfinished.discard()
    assert names(store) == []


def test_a_file_is_replaced_whole_when_another_of_its_name_is_finished(store: Blobs) -> None:
    store.put([b"first"], KEY)
    with store.write(KEY) as writing:
        writing.write(b"second")
        with store.open(KEY) as file:
            assert file.read() == b"first"
        writing.finish()
    with store.open(KEY) as file:
        assert file.read() == b"second"


def test_a_copy_stays_when_the_original_goes(store: Blobs) -> None:
    store.put([b"content"], KEY)
    linked = store.link(KEY)
    assert (linked.size, linked.sha256) == (7, hashlib.sha256(b"content").digest())
    store.copy(KEY, "other/copy.csv")
    store.copy(KEY, "other/copy.csv")
    store.remove(KEY)
    assert names(store) == sorted([linked.id, "other/copy.csv"])
    with store.open("other/copy.csv") as file:
        assert file.read() == b"content"


def test_a_file_that_is_not_there_is_an_error_and_may_be_removed_again(store: Blobs) -> None:
    store.put([b"x"], KEY)
    store.remove(KEY)
    store.remove(KEY)
    store.abandon(KEY)
    assert not store.has(KEY)
    for ask in (store.open, store.size, store.link, store.look):
        with pytest.raises(UnknownFile, match=f"there is no stored file {KEY}"):
            ask(KEY)


def test_a_scratch_file_is_adopted_unless_there_is_one_of_its_name(store: Blobs) -> None:
    made = store.scratch / "made.tmp"
    made.parent.mkdir(parents=True, exist_ok=True)
    for content in (b"first", b"later"):
        made.write_bytes(content)
        blob = store.adopt(made, KEY)
        made.unlink(missing_ok=True)
        assert blob.sha256 == hashlib.sha256(b"first").digest()
    with pytest.raises(FileNotFoundError):
        store.adopt(made, "a/new.csv")


def test_only_those_of_a_list_that_are_here_are_removed(store: Blobs) -> None:
    mine = [store.put([b"x"]).id, store.put([b"y"], KEY).id]
    kept = store.put([b"z"]).id
    assert store.remove_all([*mine, "0" * 32, "../etc", "", "no/such/file.csv"]) == mine
    assert names(store) == [kept]
    assert store.remove_all([]) == []


def test_names_are_listed_below_a_folder(store: Blobs) -> None:
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
def test_no_other_name_can_be_used(store: Blobs, tmp_path: Path, name: str) -> None:
    (tmp_path / "deep").mkdir(exist_ok=True)
    (tmp_path / "deep" / "secret").write_text("mine")
    store.put([b"x"], "right")
    for use in (store.open, store.has, store.size, store.remove, store.write, store.link, store.url, store.abandon):
        with pytest.raises(InvalidInput, match="is not the name of a stored file"):
            use(name)
    with pytest.raises(InvalidInput):
        store.copy("right", name)
    assert (tmp_path / "deep" / "secret").read_text() == "mine"


def test_stale_halves_are_removed_from_the_scratch_folder(store: Blobs) -> None:
    half = store.scratch / "half.tmp"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_bytes(b"x")
    with contextlib.closing(store.scratch.joinpath("half.tmp").open("rb")):
        assert store.remove_stale(3_600) == []
        assert store.remove_stale(-60) == ["half.tmp"]
    assert not half.exists()
