"""From a reference to a source: a stored file and its layout."""

from collections.abc import Callable
from typing import Any, BinaryIO, Protocol

from tidemill.connectors.blobs import Blobs
from tidemill.connectors.csv import CsvSource
from tidemill.connectors.csv_rows import Dialect
from tidemill.connectors.detect import describe
from tidemill.connectors.images import ImagesSource
from tidemill.connectors.json_array import JsonSource
from tidemill.connectors.layout import checked
from tidemill.connectors.ndjson import NdjsonSource
from tidemill.connectors.parquet import ParquetSource
from tidemill.connectors.records import BlockSource
from tidemill.connectors.stream import Lined, Stream, Transcoded
from tidemill.connectors.unpack import unpacked
from tidemill.connectors.xlsx import XlsxSource
from tidemill.domain.ports import Source

GoingOn = Callable[[], bool]


class Fetch(Protocol):
    """Stores what a URL refers to under this id; Interrupted soon after ``going_on`` says no."""

    def __call__(self, url: str, blob_id: str, *, going_on: GoingOn) -> object: ...


class Sources:
    """Opens what a job's ``source`` refers to. References resolve inside the blob store only.

    What a ``url`` refers to is fetched into it first, if it is not there yet.
    """

    def __init__(
        self, blobs: Blobs, *, max_row_bytes: int, max_unpacked_bytes: int = 10 << 30, fetch: Fetch | None = None
    ) -> None:
        self._blobs = blobs
        self._fetch = fetch
        self._max_row_bytes = max_row_bytes
        self._max_unpacked_bytes = max_unpacked_bytes

    def __call__(
        self, reference: dict[str, Any], checkpoint: dict[str, Any], going_on: GoingOn = lambda: True
    ) -> Source:
        """The source, open; whoever asked for it closes it."""
        blob = str(reference.get("blob", ""))
        url = reference.get("url")
        if url and self._fetch is not None and not self._blobs.has(blob):
            self._fetch(str(url), blob, going_on=going_on)
        file = self._blobs.open(blob)
        try:
            layout = _layout(reference, file)
            if layout["format"] == "images":
                return ImagesSource(file, blob, checkpoint)
            limits = {"max_row_bytes": self._max_row_bytes, "max_bytes": self._max_unpacked_bytes}
            source = open_file(file, layout, checkpoint, **limits)
            source.layout = layout
            return source
        except BaseException:
            file.close()
            raise


def _layout(reference: dict[str, Any], file: BinaryIO) -> dict[str, Any]:
    """As it was told; of a file that nobody had seen when it was asked for, what was not told is found out.

    From the file and the URL alone, so that it is the same whenever the file is opened.
    """
    told = {"format": reference.get("format")} | (reference.get("layout") or {})
    if not reference.get("url"):
        return checked(told)
    from tidemill.connectors.remote.links import file_name  # noqa: PLC0415  an HTTP client comes with it

    return describe(file, name=file_name(reference["url"]), given=told)


def open_file(
    file: BinaryIO, layout: dict[str, Any], checkpoint: dict[str, Any], *, max_row_bytes: int, max_bytes: int
) -> BlockSource:
    """The records of an open file whose layout is known."""
    kind = layout["format"]
    if kind == "xlsx":
        header, sheet = layout.get("header", True), layout.get("sheet")
        limits = {"max_row_bytes": max_row_bytes, "max_bytes": max_bytes}
        return XlsxSource(file, checkpoint, sheet=sheet, header=header, **limits)
    if kind == "parquet":
        return ParquetSource(file, checkpoint, max_row_bytes=max_row_bytes, max_bytes=max_bytes)
    stream = text_stream(file, layout, max_bytes)
    if kind == "ndjson":
        return NdjsonSource(stream, checkpoint, max_row_bytes=max_row_bytes)
    if kind == "json":
        return JsonSource(stream, checkpoint, max_row_bytes=max_row_bytes)
    delimiter, keep = layout.get("delimiter") or ("\t" if kind == "tsv" else ","), layout.get("keep_empty", False)
    dialect = Dialect(delimiter, layout.get("quote", '"'), keep_empty=keep)
    options = {"header": layout.get("header", True), "encoding": layout.get("encoding", "utf-8")}
    return CsvSource(stream, checkpoint, max_row_bytes=max_row_bytes, dialect=dialect, **options)


def text_stream(file: BinaryIO, layout: dict[str, Any], max_bytes: int) -> Stream:
    """The bytes of its text, in UTF-8."""
    stream = unpacked(file, layout.get("compression", "none"), max_bytes)
    encoding = layout.get("encoding", "utf-8")
    if encoding not in ("utf-8", "utf-8-sig"):
        stream = Transcoded(stream, encoding)
    return Lined(stream) if layout.get("line_end") == "\r" else stream
