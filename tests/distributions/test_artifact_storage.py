"""Folder listings are shared by all processes of a machine; large folders are listed in parts."""

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support import blob_stores as stores
from support.s3 import S3Server
from tidemill.distributions.artifact_storage import LISTING_PARTS, LISTING_SPLIT_MIN_NAMES, get_recent_or_list_folder
from tidemill.files.blobs.blob_store import DownloadLabel
from tidemill.files.blobs.folder_store import FolderBlobStore

DAY = "exports/2026"
LABEL = DownloadLabel("a.csv", "text/csv")


class Watched(FolderBlobStore):
    """Counts listings, and blocks them until the gate is open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.listed: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def list_names(self, below: str = "", *, after: str = "") -> Iterator[str]:
        self.listed.append(after)
        assert self.gate.wait(20)
        return super().list_names(below, after=after)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    store = Watched(tmp_path / "blobs")
    store.put([b"x"], f"{DAY}/a.csv")
    return store


def scratch_of(store: FolderBlobStore) -> Path:
    return next(store.scratch_folder.glob("*.listing.tmp"))


def test_concurrent_folder_listings_share_one_scan(watched: Watched) -> None:
    watched.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(get_recent_or_list_folder, watched, DAY, ["a"]) for _ in range(4)]
        watched.gate.set()
        assert {one.result(60).names for one in asking} == {frozenset({f"{DAY}/a.csv"})}
    assert watched.listed == [""]


def test_folder_listing_runs_separately_when_lock_wait_times_out(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.distributions.artifact_storage.LISTING_LOCK_TIMEOUT_S", 0.05)
    watched.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(get_recent_or_list_folder, watched, DAY, ["a"]) for _ in range(2)]
        while len(watched.listed) < 2:
            assert not any(one.done() for one in asking)
        watched.gate.set()
        assert all(one.result(60).names for one in asking)


def test_folder_listing_is_not_shared_when_file_locks_are_unsupported(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("tidemill.distributions.artifact_storage.LISTING_LOCK_TIMEOUT_S", 0.05)
    for _ in range(2):
        assert get_recent_or_list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert len(watched.listed) == 2


@pytest.mark.parametrize("kept", [b"", b"\x82\xa5names", b"not a listing"])
def test_corrupt_cached_folder_listing_is_ignored(watched: Watched, kept: bytes) -> None:
    get_recent_or_list_folder(watched, DAY, ["a"])
    scratch_of(watched).write_bytes(kept)
    assert get_recent_or_list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert len(watched.listed) == 2


def test_cached_folder_listing_is_refreshed_after_it_expires(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.distributions.artifact_storage.LISTING_FRESH_S", 0.0)
    get_recent_or_list_folder(watched, DAY, ["a"])
    watched.put([b"x"], f"{DAY}/b.csv")
    while len(found := get_recent_or_list_folder(watched, DAY, ["a"]).names) == 1:
        assert len(watched.listed) < 3
    assert found == {f"{DAY}/a.csv", f"{DAY}/b.csv"}


def test_cached_folder_listing_from_before_reboot_is_ignored(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = get_recent_or_list_folder(watched, DAY, ["a"])
    monkeypatch.setattr("time.monotonic", lambda: listing.good_until - 3_600)
    get_recent_or_list_folder(watched, DAY, ["a"])
    assert len(watched.listed) == 2


def test_folder_listings_are_cached_per_folder_and_store(watched: Watched, tmp_path: Path) -> None:
    assert get_recent_or_list_folder(watched, f"{DAY}/other", ["a"]).names == set()
    assert get_recent_or_list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert get_recent_or_list_folder(Watched(tmp_path / "empty"), DAY, ["a"]).names == set()


def test_large_folder_listing_in_parts_returns_every_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with S3Server(tmp_path / "s3") as server:  # a new server, because a server caches folder listings for minutes
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        store = stores.bucket(server, tmp_path)
        folder = server.folder / store.location.prefix / DAY
        folder.mkdir(parents=True)
        for number in range(2_500):
            (folder / f"{number}.csv").touch()
        there = set(store.list_names(DAY))
        asked = [f"{DAY}/{number}.csv" for number in range(LISTING_SPLIT_MIN_NAMES)]
        assert len(there) == 2_500
        assert get_recent_or_list_folder(store, DAY, asked).names == there


def test_list_names_starts_after_given_name_in_every_store(s3: S3Server, tmp_path: Path) -> None:
    for store in (stores.folder(tmp_path), stores.bucket(s3, tmp_path), stores.memory(tmp_path)):
        for name in "acb":
            store.put([b"x"], f"{DAY}/{name}")
        assert sorted(store.list_names(DAY, after=f"{DAY}/a")) == [f"{DAY}/b", f"{DAY}/c"]


def test_folder_listing_is_split_into_parts_when_many_names_are_requested(watched: Watched) -> None:
    get_recent_or_list_folder(watched, DAY, ["a"] * LISTING_SPLIT_MIN_NAMES)
    assert len(watched.listed) == LISTING_PARTS


async def test_upload_small_stores_blob_in_bucket_and_returns_none_for_folder(s3: S3Server, tmp_path: Path) -> None:
    data = os.urandom(5_000)
    for store in (stores.bucket(s3, tmp_path), stores.memory(tmp_path)):
        sent = await store.upload_in_one_request_if_supported("a/b.csv", data, LABEL)
        assert (sent.id, sent.size, sent.sha256) == ("a/b.csv", 5_000, hashlib.sha256(data).digest())
        assert store.read_size_and_hash("a/b.csv") == sent
    assert await stores.folder(tmp_path).upload_in_one_request_if_supported("a/b.csv", data, LABEL) is None
