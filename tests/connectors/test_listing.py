"""A folder of a store is listed once for all processes of a machine, in parts when it is large."""

import errno
import hashlib
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from connectors import stores
from s3 import S3Server
from tidemill.connectors.blobs import Folder, Label
from tidemill.connectors.blobs.listing import PARTS, WORTH_PARTS, list_folder

DAY = "exports/2026"
LABEL = Label("a.csv", "text/csv")


class Watched(Folder):
    """Counts who lists it, and lets nobody begin before the gate is open."""

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


def scratch_of(store: Folder) -> Path:
    return next(store.scratch.glob("*.listing.tmp"))


def test_those_who_ask_at_the_same_time_make_one_listing(watched: Watched) -> None:
    watched.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        asking = [threads.submit(list_folder, watched, DAY, ["a"]) for _ in range(4)]
        watched.gate.set()
        assert {one.result().names for one in asking} == {frozenset({f"{DAY}/a.csv"})}
    assert watched.listed == [""]


def test_who_waits_too_long_for_another_lists_by_itself(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.connectors.blobs.listing.PATIENCE_S", 0.05)
    watched.gate.clear()
    with ThreadPoolExecutor(2) as threads:
        asking = [threads.submit(list_folder, watched, DAY, ["a"]) for _ in range(2)]
        while len(watched.listed) < 2:
            assert not any(one.done() for one in asking)
        watched.gate.set()
        assert all(one.result().names for one in asking)


def test_where_files_cannot_be_locked_everybody_lists(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr("fcntl.flock", refuse)
    monkeypatch.setattr("tidemill.connectors.blobs.listing.PATIENCE_S", 0.05)
    for _ in range(2):
        assert list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert len(watched.listed) == 2


@pytest.mark.parametrize("kept", [b"", b"\x82\xa5names", b"not a listing"])
def test_what_a_killed_process_left_is_no_listing(watched: Watched, kept: bytes) -> None:
    list_folder(watched, DAY, ["a"])
    scratch_of(watched).write_bytes(kept)
    assert list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert len(watched.listed) == 2


def test_a_listing_is_believed_for_seconds(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.connectors.blobs.listing.FRESH_S", 0.0)
    list_folder(watched, DAY, ["a"])
    watched.put([b"x"], f"{DAY}/b.csv")
    while len(found := list_folder(watched, DAY, ["a"]).names) == 1:
        assert len(watched.listed) < 3
    assert found == {f"{DAY}/a.csv", f"{DAY}/b.csv"}


def test_a_listing_of_before_a_restart_of_the_machine_is_none(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = list_folder(watched, DAY, ["a"])
    monkeypatch.setattr("time.monotonic", lambda: listing.good_until - 3_600)
    list_folder(watched, DAY, ["a"])
    assert len(watched.listed) == 2


def test_folders_and_stores_have_a_listing_each(watched: Watched, tmp_path: Path) -> None:
    assert list_folder(watched, f"{DAY}/other", ["a"]).names == set()
    assert list_folder(watched, DAY, ["a"]).names == {f"{DAY}/a.csv"}
    assert list_folder(Watched(tmp_path / "empty"), DAY, ["a"]).names == set()


def test_a_large_folder_is_listed_in_parts_and_no_name_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Server(tmp_path / "s3") as server:  # of its own: one that has looked into a folder remembers it for minutes
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        store = stores.bucket(server, tmp_path)
        folder = server.folder / store.place.prefix / DAY
        folder.mkdir(parents=True)
        for number in range(2_500):
            (folder / f"{number}.csv").touch()
        there = set(store.list_names(DAY))
        asked = [f"{DAY}/{number}.csv" for number in range(WORTH_PARTS)]
        assert len(there) == 2_500
        assert list_folder(store, DAY, asked).names == there


def test_a_part_begins_after_a_name_in_every_store(s3: S3Server, tmp_path: Path) -> None:
    for store in (stores.folder(tmp_path), stores.bucket(s3, tmp_path), stores.memory(tmp_path)):
        for name in "acb":
            store.put([b"x"], f"{DAY}/{name}")
        assert sorted(store.list_names(DAY, after=f"{DAY}/a")) == [f"{DAY}/b", f"{DAY}/c"]


def test_parts_are_few_for_few_names(watched: Watched) -> None:
    list_folder(watched, DAY, ["a"] * WORTH_PARTS)
    assert len(watched.listed) == PARTS


async def test_a_small_file_is_sent_by_one_request(s3: S3Server, tmp_path: Path) -> None:
    data = os.urandom(5_000)
    for store in (stores.bucket(s3, tmp_path), stores.memory(tmp_path)):
        sent = await store.send("a/b.csv", data, LABEL)
        assert (sent.id, sent.size, sent.sha256) == ("a/b.csv", 5_000, hashlib.sha256(data).digest())
        assert store.look("a/b.csv") == sent
    assert await stores.folder(tmp_path).send("a/b.csv", data, LABEL) is None
