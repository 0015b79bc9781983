"""Opens the input source of a job: a stored file with its layout."""

from collections.abc import Callable
from typing import BinaryIO, Protocol

from tidemill.config import Settings
from tidemill.core.file_format import FileLayout
from tidemill.core.input_source import Checkpoint, InputSource, SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.byte_streams import ByteStream, CarriageReturnStream, TranscodedStream
from tidemill.files.compression import open_decompressed
from tidemill.files.formats.block_reader import BlockReader
from tidemill.files.formats.csv_reader import CsvDialect, CsvReader
from tidemill.files.formats.image_zip import ImageZipReader
from tidemill.files.formats.json_reader import JsonArrayReader, NdjsonReader
from tidemill.files.formats.parquet_reader import ParquetReader
from tidemill.files.formats.xlsx_reader import XlsxReader
from tidemill.files.layout import parse_layout_options
from tidemill.files.layout_detection import detect_layout

ShouldContinue = Callable[[], bool]


class FetchIntoBlob(Protocol):
    """Downloads a URL into the blob store. Raises Interrupted soon after ``should_continue`` returns False."""

    def __call__(self, url: str, blob_id: str, *, should_continue: ShouldContinue) -> object: ...


class SourceOpener:
    """Opens the ``source`` of a job from the blob store.

    A ``url`` is downloaded into the blob store first, unless it is already stored.
    """

    def __init__(
        self,
        blobs: BlobStore,
        *,
        max_row_bytes: int,
        max_unpacked_bytes: int = 10 << 30,
        fetch: FetchIntoBlob | None = None,
    ) -> None:
        self._blobs = blobs
        self._fetch = fetch
        self._max_row_bytes = max_row_bytes
        self._max_unpacked_bytes = max_unpacked_bytes

    def __call__(
        self, reference: SourceReference, checkpoint: Checkpoint, should_continue: ShouldContinue = lambda: True
    ) -> InputSource:
        """Return the open source; the caller closes it."""
        blob, url = reference.blob, reference.url
        if url and self._fetch is not None and not self._blobs.has(blob):
            self._fetch(url, blob, should_continue=should_continue)
        file = self._blobs.open(blob)
        try:
            layout = _resolve_layout(reference, file)
            if layout.format == "images":
                return ImageZipReader(file, blob, checkpoint)
            limits = {"max_row_bytes": self._max_row_bytes, "max_bytes": self._max_unpacked_bytes}
            source = open_block_reader(file, layout, checkpoint, **limits)
            source.layout = layout
            return source
        except BaseException:
            file.close()
            raise


def _resolve_layout(reference: SourceReference, file: BinaryIO) -> FileLayout:
    """Return the layout of the reference. For a URL, detect the options that are not given.

    Detection uses the file and the URL only, so that the result is the same whenever the file is opened.
    """
    options = {"format": reference.format} | (reference.layout.to_json() if reference.layout else {})
    if not reference.url:
        return parse_layout_options(options)
    from tidemill.files.remote.remote_urls import get_url_file_name  # noqa: PLC0415  it imports an HTTP client

    return detect_layout(file, name=get_url_file_name(reference.url), options=options)


def open_block_reader(
    file: BinaryIO, layout: FileLayout, checkpoint: Checkpoint, *, max_row_bytes: int, max_bytes: int
) -> BlockReader:
    """Return the reader for a file with a known layout."""
    kind, header = layout.format, layout.header is not False
    if kind == "xlsx":
        limits = {"max_row_bytes": max_row_bytes, "max_bytes": max_bytes}
        return XlsxReader(file, checkpoint, sheet=layout.sheet, header=header, **limits)
    if kind == "parquet":
        return ParquetReader(file, checkpoint, max_row_bytes=max_row_bytes, max_bytes=max_bytes)
    stream = open_utf8_stream(file, layout, max_bytes)
    if kind == "ndjson":
        return NdjsonReader(stream, checkpoint, max_row_bytes=max_row_bytes)
    if kind == "json":
        return JsonArrayReader(stream, checkpoint, max_row_bytes=max_row_bytes)
    delimiter = layout.delimiter or ("\t" if kind == "tsv" else ",")
    quote = '"' if layout.quote is None else layout.quote
    dialect = CsvDialect(delimiter, quote, keep_empty=bool(layout.keep_empty))
    encoding = (layout.encoding or "utf-8").removesuffix("-sig")  # messages name it
    return CsvReader(stream, checkpoint, max_row_bytes=max_row_bytes, dialect=dialect, header=header, encoding=encoding)


def open_utf8_stream(file: BinaryIO, layout: FileLayout, max_bytes: int) -> ByteStream:
    """Return the decompressed text of a file as UTF-8."""
    stream = open_decompressed(file, layout.compression or "none", max_bytes)
    encoding = layout.encoding or "utf-8"
    if encoding not in ("utf-8", "utf-8-sig"):
        stream = TranscodedStream(stream, encoding)
    return CarriageReturnStream(stream) if layout.line_end == "\r" else stream


def make_source_opener(settings: Settings) -> SourceOpener:
    """Return the opener for the sources of jobs. It downloads remote files into the blob store first."""
    blobs = open_blob_store(settings.blobs)

    def download(url: str, blob_id: str, should_continue: ShouldContinue) -> object:
        # Most processes never download and need no HTTP client.
        from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415
        from tidemill.files.remote.downloader import Downloader  # noqa: PLC0415

        limits = DownloadLimits.from_settings(settings)
        return Downloader(blobs, limits).download(url, blob_id, should_continue=should_continue)

    return SourceOpener(
        blobs,
        max_row_bytes=settings.max_row_bytes,
        max_unpacked_bytes=settings.max_unpacked_mb << 20,
        fetch=download,
    )
