"""Opens the writer of a format for result rows or for the output of COPY."""

from collections.abc import Iterable
from typing import Protocol

from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.result_grid import CellTypes, GridRow, ResultFileColumns
from tidemill.files.writers.byte_output import ByteOutput, CompressedEncoder, CompressedOutput, CopyEncoder
from tidemill.files.writers.copy_encoders import (
    CsvWriter,
    JsonArrayEncoder,
    JsonWriter,
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
    form: OutputFileSpec, output: ByteOutput, columns: ResultFileColumns, *, types: CellTypes | None = None
) -> RowWriter:
    """Return a writer of result rows. Parquet requires ``types``; it is not compressed, as it compresses itself.

    Raises:
        InvalidInput: The format needs an extra that is not installed.
    """
    packing = None if form.compression is Compression.NONE else CompressedOutput(output, form.compression)
    writer = _open_format_writer(form, packing or output, columns, types)
    return writer if packing is None else CompressedWriter(writer, packing)


def _open_format_writer(
    form: OutputFileSpec, output: ByteOutput, columns: ResultFileColumns, types: CellTypes | None
) -> RowWriter:
    match form.format:
        case FileFormat.CSV:
            return CsvWriter(output, columns, spreadsheet_safe=form.spreadsheet_safe)
        case FileFormat.XLSX:
            return XlsxWriter(output, columns, spreadsheet_safe=form.spreadsheet_safe)
        case FileFormat.NDJSON:
            return NdjsonWriter(output, columns)
        case FileFormat.JSON:
            return JsonWriter(output, columns)
        case FileFormat.PARQUET:
            from tidemill.files.writers.parquet_encoder import ParquetRowWriter  # noqa: PLC0415  an extra

            return ParquetRowWriter(output, columns, types or CellTypes(columns))


class CompressedWriter:
    """A writer with compressed output."""

    def __init__(self, inner: RowWriter, packing: CompressedOutput) -> None:
        self._inner = inner
        self._packing = packing
        self.write = inner.write

    @property
    def cut_cells(self) -> int:
        return self._inner.cut_cells

    def close(self) -> None:
        self._inner.close()
        self._packing.finish()


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
