"""Stored files are whole or absent, and only they can be opened."""

import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemill.connectors.blobs import Blobs, Folder
from tidemill.connectors.csv import CsvSource
from tidemill.connectors.ndjson import NdjsonSource
from tidemill.connectors.source import Sources
from tidemill.domain.errors import InvalidInput, UnknownFile


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Folder(tmp_path / "deep" / "blobs")


def test_what_is_put_is_got_back_with_its_size_and_hash(blobs: Blobs) -> None:
    blob = blobs.put([b"one", b"", b"two"])
    with blobs.open(blob.id) as file:
        assert file.read() == b"onetwo"
    assert (blob.size, blob.sha256) == (6, hashlib.sha256(b"onetwo").digest())


def test_the_same_bytes_twice_are_two_blobs(blobs: Blobs) -> None:
    assert blobs.put([b"x"]).id != blobs.put([b"x"]).id


def test_a_file_larger_than_a_piece_is_stored_whole(blobs: Blobs, tmp_path: Path) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"0123456789" * 300_000)
    blob = blobs.put_file(path)
    with blobs.open(blob.id) as file:
        assert file.read() == path.read_bytes()


def test_an_empty_file_is_a_file(blobs: Blobs) -> None:
    blob = blobs.put([])
    with blobs.open(blob.id) as file:
        assert file.read() == b""


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_stream_that_breaks_leaves_nothing(blobs: Blobs, tmp_path: Path, error: type[BaseException]) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise error

    with pytest.raises(error):
        blobs.put(broken())
    assert list((tmp_path / "deep" / "blobs").iterdir()) == []


def test_nothing_can_be_read_under_its_name_before_it_is_whole(blobs: Blobs, tmp_path: Path) -> None:
    def looking() -> Iterator[bytes]:
        yield b"half"
        names = [path.name for path in (tmp_path / "deep" / "blobs").iterdir()]
        assert all(name.endswith(".tmp") for name in names)
        yield b"whole"

    assert blobs.put(looking()).size == 9


@pytest.mark.parametrize("name", ["", "..", "../secret", "/etc/passwd", "A" * 32, "a" * 31, "a" * 33, "a" * 32 + "\n"])
def test_only_a_blobs_own_name_can_be_opened_or_removed(blobs: Blobs, tmp_path: Path, name: str) -> None:
    blobs.put([b"x"])
    (tmp_path / "deep" / "secret").write_text("mine")
    with pytest.raises(InvalidInput, match="is not the name of a stored file"):
        blobs.open(name)
    blobs.remove(name)
    assert (tmp_path / "deep" / "secret").read_text() == "mine"


def test_a_blob_that_is_gone_is_an_error_and_may_be_removed_again(blobs: Blobs) -> None:
    blob = blobs.put([b"x"])
    blobs.remove(blob.id)
    blobs.remove(blob.id)
    with pytest.raises(UnknownFile):
        blobs.open(blob.id)


@pytest.mark.parametrize(("format_", "kind"), [("ndjson", NdjsonSource), ("csv", CsvSource), ("tsv", CsvSource)])
def test_a_reference_opens_a_source_of_its_format(blobs: Blobs, format_: str, kind: type) -> None:
    blob = blobs.put([b"1\n2\n"])
    source = Sources(blobs, max_row_bytes=100)({"blob": blob.id, "format": format_}, {})
    with contextlib.closing(source):
        assert isinstance(source, kind)


@pytest.mark.parametrize("format_", ["xml", "", None, 7])
def test_an_unknown_format_is_refused_and_leaves_no_file_open(blobs: Blobs, format_: object) -> None:
    blob = blobs.put([b"x"])
    with pytest.raises(InvalidInput, match="known are csv, images, json, ndjson, parquet, tsv, xlsx"):
        Sources(blobs, max_row_bytes=100)({"blob": blob.id, "format": format_}, {})


def test_a_reference_to_no_blob_is_refused(blobs: Blobs) -> None:
    with pytest.raises(InvalidInput, match="is not the name of a stored file"):
        Sources(blobs, max_row_bytes=100)({"format": "csv"}, {})
