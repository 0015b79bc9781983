"""What only a bucket promises: requests that end, errors in our words, links, and one process."""

import hashlib
import io
import os
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import obstore
import pytest

from connectors import stores
from connectors.conftest import Serve
from connectors.stores import IMPATIENT, names
from s3 import S3Server
from tidemill.connectors.blobs import Blobs, Label, open_blobs
from tidemill.connectors.blobs.bucket import Bucket
from tidemill.connectors.blobs.reader import LARGEST, SMALLEST, RangeReader
from tidemill.connectors.remote.download import Remote
from tidemill.connectors.remote.limits import RemoteLimits
from tidemill.domain.errors import InvalidInput, StoreDenied, StoreUnavailable, UnknownFile
from tidemill.domain.place import BucketPlace, parse_place

MEGABYTE = b"x" * (1 << 20)
USES: list[Callable[[Blobs], Any]] = [
    lambda blobs: blobs.put([b"x"], "a"),
    lambda blobs: blobs.open("a"),
    lambda blobs: blobs.has("a"),
    lambda blobs: blobs.copy("a", "b"),
    lambda blobs: blobs.remove("a"),
    names,
]


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server of one's own, to be killed."""
    with S3Server(tmp_path / "data") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


def test_a_file_has_an_address_and_a_link_that_anybody_can_use(s3: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(s3, tmp_path)
    blobs.put([b"content"], "exports/a.csv")
    assert blobs.url("exports/a.csv") == f"{blobs.place}/exports/a.csv"
    assert str(blobs.place).startswith(f"s3://{s3.bucket}/some/")
    link = blobs.presigned("exports/a.csv", 60)
    assert link is not None
    assert s3.secret not in link
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"content"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(link.replace("Signature=", "Signature=0"))


def test_a_label_goes_with_the_file(tmp_path: Path) -> None:
    blobs = stores.memory(tmp_path)
    with blobs.write("a") as writing:
        writing.label = Label('J1 "ä".csv', "text/csv")
        writing.write(b"x")
        writing.finish()
    kept = obstore.get(blobs.store, "some/a").attributes
    assert kept == {"Content-Disposition": 'attachment; filename="J1 ___.csv"', "Content-Type": "text/csv"}


@pytest.mark.parametrize("use", USES)
def test_wrong_keys_are_told_of_without_them(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Blobs], Any]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    with pytest.raises(StoreDenied, match=rf"^s3://{s3.bucket}/some/\w+ denies access \(403") as caught:
        use(stores.bucket(s3, tmp_path))
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(secret in shown for secret in ("topsecret", s3.key, "Signature="))


@pytest.mark.parametrize("use", USES)
def test_a_server_that_is_gone_is_told_of_soon(mortal: S3Server, tmp_path: Path, use: Callable[[Blobs], Any]) -> None:
    mortal.kill()
    with pytest.raises(StoreUnavailable, match=r"does not answer as it should \(it cannot be reached"):
        use(stores.bucket(mortal, tmp_path, IMPATIENT))


def test_a_server_that_says_nothing_is_given_up(mortal: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    blobs.put([b"x"], "kept")
    with mortal.frozen():
        # a put to "a", not "kept": when it thaws, this server drops a file whose sender has left in mid-request
        for use in (USES[0], USES[2]):
            with pytest.raises(StoreUnavailable, match="is too slow"):
                use(blobs)
    assert blobs.has("kept")


def test_a_bucket_that_is_not_there_is_told_of(s3: S3Server, tmp_path: Path) -> None:
    blobs = Bucket(BucketPlace("s3", "nowhere"), IMPATIENT, scratch=tmp_path)
    with pytest.raises(StoreUnavailable, match=r"s3://nowhere cannot be written: there is no such bucket"):
        blobs.put([b"x"])
    with pytest.raises(UnknownFile):
        blobs.open("a")


def test_a_server_that_goes_in_mid_file_leaves_nothing_and_the_next_try_is_whole(
    mortal: S3Server, tmp_path: Path
) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)

    def pieces() -> Iterator[bytes]:
        for n in range(30):
            if n == 12:
                mortal.kill()
            yield MEGABYTE

    with pytest.raises(StoreUnavailable):
        blobs.put(pieces(), "a/large.csv")
    assert mortal.names() == []
    mortal.start()
    assert not blobs.has("a/large.csv")
    blob = blobs.put([MEGABYTE] * 30, "a/large.csv")
    assert blobs.look("a/large.csv") == blob


def test_a_server_that_goes_while_a_file_is_read_breaks_the_reading(mortal: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    blobs.put([MEGABYTE] * 20, "a")
    with blobs.open("a") as file:
        mortal.kill()
        with pytest.raises(StoreUnavailable):
            file.read()
        mortal.start()
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(MEGABYTE * 20).digest()
    blobs.abandon("a")
    mortal.kill()
    blobs.abandon("a")


def test_a_file_that_is_replaced_is_not_read_half_and_half(tmp_path: Path) -> None:
    blobs = stores.memory(tmp_path)
    blobs.put([MEGABYTE * 4], "a")
    with blobs.open("a") as file:
        file.read(10)
        blobs.put([b"y" * (4 << 20)], "a")
        with pytest.raises(StoreUnavailable):
            file.read()


def test_ranges_grow_while_a_file_is_read_on_and_are_small_after_a_jump() -> None:
    class Counted:
        size = 64 << 20

        def __init__(self) -> None:
            self.asked: list[tuple[int, int]] = []

        def read(self, start: int, end: int) -> bytes:
            self.asked.append((start, end))
            return bytes(end - start)

        def close(self) -> None:
            self.asked.append((-1, -1))

    counted = Counted()
    file = io.BufferedReader(RangeReader(counted), SMALLEST)
    while file.read(100_000):
        pass
    sizes = [end - start for start, end in counted.asked]
    assert sum(sizes) == counted.size, "nothing is asked for twice"
    assert (sizes[0] <= 2 * SMALLEST, max(sizes), len(sizes) < 20) == (True, LARGEST, True)
    file.seek(5_000_000)
    file.read(10)
    assert counted.asked[-1] == (5_000_000, 5_000_000 + SMALLEST)
    file.close()
    file.close()
    assert counted.asked.count((-1, -1)) == 1


def test_a_file_of_another_machine_is_fetched_once_though_the_store_was_away(
    mortal: S3Server, tmp_path: Path, serve: Serve
) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    server = serve(lambda request: request.give(b"a,b\n1,2\n"))
    remote = Remote(blobs, RemoteLimits(1_000_000, allowed=[server.allowed]))
    asked = iter([True, False])

    def going_on() -> bool:  # the store goes when the file is on its way
        if next(asked, False):
            mortal.kill()
        return True

    with pytest.raises(StoreUnavailable):
        remote.download(server.url(), "0" * 32, going_on=going_on)
    mortal.start()
    fetched = remote.download(server.url(), "0" * 32)
    with blobs.open("0" * 32) as file:
        assert file.read() == b"a,b\n1,2\n"
    assert (fetched.blob.size, list(blobs.scratch.iterdir())) == (8, [])
    assert len(server.requests) == 1, "what was here is not fetched again"


def test_a_forked_process_is_told_so_instead_of_waiting_for_ever(s3: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(s3, tmp_path)
    assert not blobs.has("a")
    child = os.fork()
    if not child:
        try:
            blobs.has("a")
        except StoreUnavailable as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_place_of_a_bucket_is_a_name_and_a_prefix(s3: S3Server) -> None:
    assert open_blobs(s3.place()).url("a") == f"s3://{s3.bucket}/a"
    assert open_blobs("gs://bucket/a/b/").url("c/d") == "gs://bucket/a/b/c/d"
    assert open_blobs("az://container").url("c") == "az://container/c"
    blobs = open_blobs(s3.place())
    blob = blobs.put([b"at the top"])
    assert blob.id in names(blobs)
    blobs.remove(blob.id)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "s3://", "s3:///a", "s3://b/../c", "s3://bucket/a//b", "ftp://host/a", "s3://u:topsecret@bucket"),
        *("https://bucket.example.com", "s3://bucket?key=topsecret", "s3://bucket/a b", "file://host/a", "a\0b"),
    ],
)
def test_any_other_place_is_refused_and_nothing_secret_is_repeated(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_place(text)
    assert "topsecret" not in str(caught.value)
