"""From a reference to a source: a stored file and its format."""

from typing import Any

from tidemill.connectors.blobs import Blobs
from tidemill.connectors.csv import CsvSource
from tidemill.connectors.ndjson import NdjsonSource
from tidemill.domain.errors import InvalidInput

FORMATS = {".ndjson": "ndjson", ".jsonl": "ndjson", ".csv": "csv", ".tsv": "tsv"}


class Sources:
    """Opens what a job's ``source`` refers to. References resolve inside the blob store only."""

    def __init__(self, blobs: Blobs, *, max_row_bytes: int) -> None:
        self._blobs = blobs
        self._max_row_bytes = max_row_bytes

    def __call__(self, reference: dict[str, Any]) -> CsvSource | NdjsonSource:
        """The source, open; whoever asked for it closes it."""
        kind = reference.get("format")
        if kind not in FORMATS.values():
            raise InvalidInput(f"unknown format {kind!r}; known are {', '.join(sorted(set(FORMATS.values())))}")
        file = self._blobs.open(str(reference.get("blob", "")))
        if kind == "ndjson":
            return NdjsonSource(file, max_row_bytes=self._max_row_bytes)
        return CsvSource(file, max_row_bytes=self._max_row_bytes, delimiter="\t" if kind == "tsv" else ",")
