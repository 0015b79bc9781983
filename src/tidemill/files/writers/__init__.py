"""Opens the writer of a format for result rows or for the output of COPY."""

from collections.abc import Iterable
from typing import Protocol

from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec, ResultFileFormat
from tidemill.core.result_grid import GridColumns, GridRow
from tidemill.files.writers.byte_output import ByteOutput, CompressedEncoder, CompressedOutput, CopyEncoder
from tidemill.files.writers.copy_encoders import (
    CsvWriter,
    JsonArrayEncoder,
    NdjsonWriter,
    PassthroughEncoder,
    XlsxWriter,
)


class RowWriter(Protocol):
    """Writes result rows. Calls block. ``cut_cells`` counts the values that were truncated to fit the format."""

    @property
    def cut_cells(self) -> int: ...
    def write(self, rows: Iterable[GridRow]) -> None: ...
    def close(self) -> None: ...


def open_row_writer(
    format_: ResultFileFormat, output: ByteOutput, columns: GridColumns, *, spreadsheet_safe: bool = False
) -> RowWriter:
    """Return a writer. ``spreadsheet_safe`` puts an apostrophe before text that could run as a formula."""
    match format_:
        case ResultFileFormat.CSV:
            return CsvWriter(output, columns, spreadsheet_safe=spreadsheet_safe)
        case ResultFileFormat.XLSX:
            return XlsxWriter(output, columns, spreadsheet_safe=spreadsheet_safe)
        case ResultFileFormat.NDJSON:
            return NdjsonWriter(output, columns)


def open_copy_encoder(form: OutputFileSpec, output: ByteOutput) -> CopyEncoder:
    """Return an encoder; InvalidInput if the format needs an extra that is not installed."""
    if form.compression is Compression.NONE:
        return _open_format_encoder(form, output)
    packing = CompressedOutput(output, form.compression)
    return CompressedEncoder(_open_format_encoder(form, packing), packing)


def _open_format_encoder(form: OutputFileSpec, output: ByteOutput) -> CopyEncoder:
    match form.format:
        case FileFormat.CSV | FileFormat.NDJSON:
            return PassthroughEncoder(output)
        case FileFormat.JSON:
            return JsonArrayEncoder(output)
        case FileFormat.XLSX:
            from tidemill.files.writers.copy_encoders import XlsxEncoder  # noqa: PLC0415  other formats need no zip

            return XlsxEncoder(form, output)
        case FileFormat.PARQUET:
            from tidemill.files.writers.parquet_encoder import ParquetEncoder  # noqa: PLC0415  an extra

            return ParquetEncoder(form, output)
