"""From a reference to a source: a stored file and its format."""

from typing import Any

from tidemill.connectors.blobs import Blobs
from tidemill.connectors.csv import CsvSource
from tidemill.connectors.images import ImagesSource
from tidemill.connectors.ndjson import NdjsonSource
from tidemill.domain.errors import InvalidInput

FORMATS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".tsv": "tsv", ".zip": "images"}


class Sources:
    """Opens what a job's ``source`` refers to. References resolve inside the blob store only."""

    def __init__(self, blobs: Blobs, *, max_row_bytes: int) -> None:
        self._blobs = blobs
        self._max_row_bytes = max_row_bytes

    def __call__(self, reference: dict[str, Any]) -> CsvSource | NdjsonSource | ImagesSource:
        """The source, open; whoever asked for it closes it."""
        kind = reference.get("format")
        if kind not in FORMATS.values():
            raise InvalidInput(f"unknown format {kind!r}; known are {', '.join(sorted(set(FORMATS.values())))}")
        blob = str(reference.get("blob", ""))
        file = self._blobs.open(blob)
        if kind == "images":
            return ImagesSource(file, blob)
        if kind == "ndjson":
            return NdjsonSource(file, max_row_bytes=self._max_row_bytes)
        return CsvSource(file, max_row_bytes=self._max_row_bytes, delimiter="\t" if kind == "tsv" else ",")
