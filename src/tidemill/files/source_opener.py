"""Opens the input source of a job: a stored file with its layout."""

import io
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import DetectedLayout, FileLayout
from tidemill.core.input_source import Checkpoint, InputSource, SourceDownloader, SourceFetchProgress, SourceReference
from tidemill.files.blobs import open_blob_store
from tidemill.files.blobs.blob_store import BlobStore
from tidemill.files.byte_streams import ByteStream, CarriageReturnStream, TranscodedStream
from tidemill.files.compression import open_decompressed
from tidemill.files.file_sample import (
    SAMPLE_ROWS_MAX,
    SPLICED_MAX_BYTES,
    SPLICED_ROWS_MAX,
    TEXT_SAMPLE_FORMATS,
    splice_text_sample,
)
from tidemill.files.formats.block_reader import BlockReader
from tidemill.files.formats.csv_dialect import CsvDialect
from tidemill.files.formats.csv_reader import CsvReader, CsvTableRange
from tidemill.files.formats.image_zip import ImageZipReader
from tidemill.files.formats.json_reader import JsonArrayReader, NdjsonReader
from tidemill.files.formats.parquet_reader import ParquetReader
from tidemill.files.formats.xlsx_reader import XlsxReader
from tidemill.files.layout import parse_layout_options
from tidemill.files.layout_detection import detect_layout

if TYPE_CHECKING:  # settings load pydantic, which a reader process does not need
    from tidemill.config import Settings

ShouldContinue = Callable[[], bool]


class SourceOpener:
    """Opens the ``source`` of a job from the blob store, in this process."""

    def __init__(self, blobs: BlobStore, *, max_row_bytes: int, max_unpacked_bytes: int = 10 << 30) -> None:
        self._blobs = blobs
        self._max_row_bytes = max_row_bytes
        self._max_unpacked_bytes = max_unpacked_bytes

    def __call__(
        self,
        reference: SourceReference,
        checkpoint: Checkpoint,
        should_continue: ShouldContinue = lambda: True,  # noqa: ARG002  a stored file opens without a wait
    ) -> InputSource:
        """Return the open source; the caller closes it."""
        blob = reference.blob
        file = self._blobs.open(blob)
        try:
            layout = _resolve_layout(reference, file)
            if layout.format == "images":
                return ImageZipReader(file, blob, checkpoint)
            limits = {"max_row_bytes": self._max_row_bytes, "max_bytes": self._max_unpacked_bytes}
            source = open_block_reader(file, layout, checkpoint, **limits)
            if layout.format != "xlsx":  # its reader detects options
                source.layout = layout
            elif reference.url:
                DetectedLayout(source.layout, source.findings).require_certain()
            source.sample = partial(self._read_sample, blob, source.layout)
            return source
        except BaseException:
            file.close()
            raise

    def _read_sample(self, blob: str, layout: FileLayout) -> list[bytes]:
        """Return records of all parts of a file, or of its beginning. Ignore damage, which the reader reports."""
        with self._blobs.open(blob) as file, suppress(InvalidInput):
            limits = {"max_row_bytes": self._max_row_bytes, "max_bytes": self._max_unpacked_bytes}
            if layout.format in TEXT_SAMPLE_FORMATS:
                data = io.BytesIO(splice_text_sample(file, layout, self._max_unpacked_bytes))
                source = open_block_reader(data, replace(layout, compression="none"), {}, **limits)
                rows = SPLICED_ROWS_MAX
            else:
                source = open_block_reader(file, layout, {}, **limits)
                rows = SAMPLE_ROWS_MAX
            block = source.read(rows, SPLICED_MAX_BYTES)
            valid = [text for at, text in enumerate(block.inputs) if at not in block.defects]
            return valid[:: -(-len(valid) // SAMPLE_ROWS_MAX) or 1]
        return []


def _resolve_layout(reference: SourceReference, file: BinaryIO) -> FileLayout:
    """Return the layout of the reference. For a URL, detect the options that are not given.

    Detection uses the file and the URL only, so that the result is the same whenever the file is opened.
    """
    options = {"format": reference.format} | (reference.layout.to_json() if reference.layout else {})
    if not reference.url:
        return parse_layout_options(options)
    from tidemill.files.remote.checked_connection import get_url_file_name  # noqa: PLC0415  it imports an HTTP client

    return detect_layout(file, name=get_url_file_name(reference.url), options=options)


def open_block_reader(
    file: BinaryIO, layout: FileLayout, checkpoint: Checkpoint, *, max_row_bytes: int, max_bytes: int
) -> BlockReader:
    """Return the reader for a file with a known layout."""
    kind = layout.format
    if kind == "xlsx":
        limits = {"max_row_bytes": max_row_bytes, "max_bytes": max_bytes}
        return XlsxReader(file, checkpoint, layout=layout, **limits)
    if kind == "parquet":
        return ParquetReader(file, checkpoint, max_row_bytes=max_row_bytes, max_bytes=max_bytes)
    stream = open_utf8_stream(file, layout, max_bytes)
    if kind == "ndjson":
        return NdjsonReader(stream, checkpoint, max_row_bytes=max_row_bytes, flattens=bool(layout.flatten))
    if kind == "json":
        return JsonArrayReader(
            stream,
            checkpoint,
            max_row_bytes=max_row_bytes,
            records=layout.records or "",
            flattens=bool(layout.flatten),
        )
    encoding = (layout.encoding or "utf-8").removesuffix("-sig")  # messages name it
    return CsvReader(
        stream,
        checkpoint,
        max_row_bytes=max_row_bytes,
        dialect=make_csv_dialect(layout),
        table=make_csv_table_range(layout),
        encoding=encoding,
    )


def make_csv_dialect(layout: FileLayout) -> CsvDialect:
    delimiter = layout.delimiter or ("\t" if layout.format == "tsv" else ",")
    quote = '"' if layout.quote is None else layout.quote
    return CsvDialect(delimiter, quote, keep_empty=bool(layout.keep_empty), escape=layout.escape or "")


def make_csv_table_range(layout: FileLayout) -> CsvTableRange:
    rows = layout.header_rows
    if rows is None or layout.header is False:
        rows = int(layout.header is not False)
    return CsvTableRange(
        skip_lines=layout.skip_lines or 0,
        header_rows=rows,
        table_lines=layout.table_lines,
        footer_lines=layout.footer_lines or 0,
        comment=layout.comment or "",
        trailing_delimiter=bool(layout.trailing_delimiter),
        pads_short_rows=layout.short_rows == "pad",
        cuts_long_rows=layout.long_rows == "cut",
    )


def open_utf8_stream(file: BinaryIO, layout: FileLayout, max_bytes: int) -> ByteStream:
    """Return the decompressed text of a file as UTF-8."""
    stream = open_decompressed(file, layout.compression or "none", max_bytes)
    encoding = layout.encoding or "utf-8"
    if encoding not in ("utf-8", "utf-8-sig"):
        stream = TranscodedStream(stream, encoding)
    return CarriageReturnStream(stream) if layout.line_end == "\r" else stream


def make_source_fetch(settings: "Settings") -> SourceDownloader:
    """Return the function that downloads a source with a URL into the blob store, unless it is already stored."""
    blobs = open_blob_store(settings.blobs)

    def fetch_source(reference: SourceReference, progress: SourceFetchProgress) -> tuple[int, bool]:
        # Most processes never download and need no HTTP client.
        from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415
        from tidemill.files.remote.downloader import Downloader  # noqa: PLC0415

        if reference.url is None or blobs.has(reference.blob):
            return blobs.size(reference.blob), False
        downloaded = Downloader(blobs, DownloadLimits.from_settings(settings)).download(
            reference.url,
            reference.blob,
            should_continue=progress.should_continue,
            report_progress=progress.report,
        )
        return downloaded.blob.size, True

    return fetch_source
