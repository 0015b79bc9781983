"""The source opener opens only stored files of known formats."""

import contextlib
from pathlib import Path

import pytest

from tidemill.core.errors import InvalidInput
from tidemill.core.input_source import SourceReference
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.blobs.folder_store import FolderBlobStore
from tidemill.files.formats.csv_reader import CsvReader
from tidemill.files.formats.json_reader import NdjsonReader
from tidemill.files.source_opener import SourceOpener


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return FolderBlobStore(tmp_path / "deep" / "blobs")


@pytest.mark.parametrize(("format_", "kind"), [("ndjson", NdjsonReader), ("csv", CsvReader), ("tsv", CsvReader)])
def test_source_opener_returns_reader_for_format(blobs: BlobStore, format_: str, kind: type) -> None:
    blob = blobs.put([b"1\n2\n"])
    source = SourceOpener(blobs, max_row_bytes=100)(SourceReference(blob=blob.id, format=format_), {})
    with contextlib.closing(source):
        assert isinstance(source, kind)


@pytest.mark.parametrize("format_", ["xml", "", None, 7])
def test_source_opener_rejects_unknown_format(blobs: BlobStore, format_: object) -> None:
    blob = blobs.put([b"x"])
    with pytest.raises(
        InvalidInput, match='must be one of "csv", "images", "json", "ndjson", "parquet", "tsv", "xlsx"'
    ):
        SourceOpener(blobs, max_row_bytes=100)(SourceReference.from_json({"blob": blob.id, "format": format_}), {})


def test_source_opener_rejects_reference_without_blob(blobs: BlobStore) -> None:
    with pytest.raises(InvalidInput, match="Invalid name for a stored file"):
        SourceOpener(blobs, max_row_bytes=100)(SourceReference.from_json({"format": "csv"}), {})
