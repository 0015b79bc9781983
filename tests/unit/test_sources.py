"""From a reference to a source: only stored files of known formats."""

import contextlib
from pathlib import Path

import pytest

from tidemill.connectors.blobs import Blobs, Folder
from tidemill.connectors.csv import CsvSource
from tidemill.connectors.ndjson import NdjsonSource
from tidemill.connectors.source import Sources
from tidemill.domain.errors import InvalidInput


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Folder(tmp_path / "deep" / "blobs")


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
