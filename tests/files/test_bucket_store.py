"""Behaviour of the bucket store: timeouts, translated errors, signed links and forks."""

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

from files.conftest import Serve
from support import blob_stores as stores
from support.blob_stores import IMPATIENT, names
from support.s3 import S3Server
from tidemill.core.blob_location import BucketLocation, parse_blob_location
from tidemill.core.errors import InvalidInput, StorageAccessDenied, StorageUnavailable, UnknownFile
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore, DownloadLabel
from tidemill.files.blobs.bucket_store import RANGE_READ_MAX_BYTES, RANGE_READ_MIN_BYTES, BucketBlobStore, RangeReader
from tidemill.files.remote.checked_connection import DownloadLimits
from tidemill.files.remote.downloader import Downloader

MEGABYTE = b"x" * (1 << 20)
USES: list[Callable[[BlobStore], Any]] = [
    lambda blobs: blobs.put([b"x"], "a"),
    lambda blobs: blobs.open("a"),
    lambda blobs: blobs.has("a"),
    lambda blobs: blobs.copy("a", "b"),
    lambda blobs: blobs.remove("a"),
    names,
]


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A server for one test, which the test can kill."""
    with S3Server(tmp_path / "data") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


def test_bucket_blob_has_url_and_working_presigned_link(s3: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(s3, tmp_path)
    blobs.put([b"content"], "exports/a.csv")
    assert blobs.url("exports/a.csv") == f"{blobs.location}/exports/a.csv"
    assert str(blobs.location).startswith(f"s3://{s3.bucket}/some/")
    link = blobs.presign_url("exports/a.csv", 60)
    assert link is not None
    assert s3.secret not in link
    with urllib.request.urlopen(link) as answer:
        assert answer.read() == b"content"
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(link.replace("Signature=", "Signature=0"))


def test_bucket_blob_stores_download_label_as_attributes(tmp_path: Path) -> None:
    blobs = stores.memory(tmp_path)
    with blobs.open_writer("a") as writing:
        writing.label = DownloadLabel('J1 "ä".csv', "text/csv")
        writing.write(b"x")
        writing.finish()
    kept = obstore.get(blobs.client, "some/a").attributes
    assert kept == {"Content-Disposition": 'attachment; filename="J1 ___.csv"', "Content-Type": "text/csv"}


@pytest.mark.parametrize("use", USES)
def test_bucket_wrong_credentials_raise_store_denied_without_secrets(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[BlobStore], Any]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    with pytest.raises(StorageAccessDenied, match=rf"^Access to s3://{s3.bucket}/some/\w+ denied \(403") as caught:
        use(stores.bucket(s3, tmp_path))
    shown = "".join(traceback.format_exception(caught.value))
    assert not any(secret in shown for secret in ("topsecret", s3.key, "Signature="))


@pytest.mark.parametrize("use", USES)
def test_bucket_unreachable_server_raises_store_unavailable(
    mortal: S3Server, tmp_path: Path, use: Callable[[BlobStore], Any]
) -> None:
    mortal.kill()
    with pytest.raises(StorageUnavailable, match=r"^Request to .* failed \(unreachable"):
        use(stores.bucket(mortal, tmp_path, IMPATIENT))


def test_bucket_request_to_silent_server_times_out(mortal: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    blobs.put([b"x"], "kept")
    with mortal.frozen():
        # Write to "a", not "kept": this server deletes a file whose client disconnected during a request.
        for use in (USES[0], USES[2]):
            with pytest.raises(StorageUnavailable, match="timeout"):
                use(blobs)
    assert blobs.has("kept")


def test_missing_bucket_write_raises_store_unavailable(s3: S3Server, tmp_path: Path) -> None:
    blobs = BucketBlobStore(BucketLocation("s3", "nowhere"), IMPATIENT, scratch_folder=tmp_path)
    with pytest.raises(StorageUnavailable, match=r"Cannot write to s3://nowhere: the bucket does not exist"):
        blobs.put([b"x"])
    with pytest.raises(UnknownFile):
        blobs.open("a")


def test_bucket_upload_interrupted_leaves_nothing_and_retry_is_complete(mortal: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)

    def pieces() -> Iterator[bytes]:
        for n in range(30):
            if n == 12:
                mortal.kill()
            yield MEGABYTE

    with pytest.raises(StorageUnavailable):
        blobs.put(pieces(), "a/large.csv")
    assert mortal.list_object_names() == []
    mortal.start()
    assert not blobs.has("a/large.csv")
    blob = blobs.put([MEGABYTE] * 30, "a/large.csv")
    assert blobs.read_size_and_hash("a/large.csv") == blob


def test_bucket_read_fails_when_server_dies_and_continues_after_restart(mortal: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    blobs.put([MEGABYTE] * 20, "a")
    with blobs.open("a") as file:
        mortal.kill()
        with pytest.raises(StorageUnavailable):
            file.read()
        mortal.start()
        assert hashlib.sha256(file.read()).digest() == hashlib.sha256(MEGABYTE * 20).digest()
    blobs.try_remove("a")
    mortal.kill()
    blobs.try_remove("a")


def test_bucket_read_fails_when_file_is_replaced_meanwhile(tmp_path: Path) -> None:
    blobs = stores.memory(tmp_path)
    blobs.put([MEGABYTE * 4], "a")
    with blobs.open("a") as file:
        file.read(10)
        blobs.put([b"y" * (4 << 20)], "a")
        with pytest.raises(StorageUnavailable):
            file.read()


def test_range_reader_grows_sequential_reads_and_resets_after_seek() -> None:
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
    file = io.BufferedReader(RangeReader(counted), RANGE_READ_MIN_BYTES)
    while file.read(100_000):
        pass
    sizes = [end - start for start, end in counted.asked]
    assert sum(sizes) == counted.size, "no range is read twice"
    assert (sizes[0] <= 2 * RANGE_READ_MIN_BYTES, max(sizes), len(sizes) < 20) == (True, RANGE_READ_MAX_BYTES, True)
    file.seek(5_000_000)
    file.read(10)
    assert counted.asked[-1] == (5_000_000, 5_000_000 + RANGE_READ_MIN_BYTES)
    file.close()
    file.close()
    assert counted.asked.count((-1, -1)) == 1


def test_download_is_not_repeated_when_bucket_was_unavailable(mortal: S3Server, tmp_path: Path, serve: Serve) -> None:
    blobs = stores.bucket(mortal, tmp_path, IMPATIENT)
    server = serve(lambda request: request.give(b"a,b\n1,2\n"))
    remote = Downloader(blobs, DownloadLimits(1_000_000, allowed=[server.allowed]))
    asked = iter([True, False])

    def going_on() -> bool:  # stop the store during the download
        if next(asked, False):
            mortal.kill()
        return True

    with pytest.raises(StorageUnavailable):
        remote.download(server.url(), "0" * 32, should_continue=going_on)
    mortal.start()
    fetched = remote.download(server.url(), "0" * 32)
    with blobs.open("0" * 32) as file:
        assert file.read() == b"a,b\n1,2\n"
    assert (fetched.blob.size, list(blobs.scratch_folder.iterdir())) == (8, [])
    assert len(server.requests) == 1, "what was here is not fetched again"


def test_bucket_store_in_forked_process_raises_instead_of_hanging(s3: S3Server, tmp_path: Path) -> None:
    blobs = stores.bucket(s3, tmp_path)
    assert not blobs.has("a")
    child = os.fork()
    if not child:
        try:
            blobs.has("a")
        except StorageUnavailable as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_bucket_location_parses_name_and_prefix(s3: S3Server) -> None:
    assert open_blob_store(s3.blobs_url()).url("a") == f"s3://{s3.bucket}/a"
    assert open_blob_store("gs://bucket/a/b/").url("c/d") == "gs://bucket/a/b/c/d"
    assert open_blob_store("az://container").url("c") == "az://container/c"
    blobs = open_blob_store(s3.blobs_url())
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
def test_invalid_blob_location_is_rejected_without_secrets(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_blob_location(text)
    assert "topsecret" not in str(caught.value)
