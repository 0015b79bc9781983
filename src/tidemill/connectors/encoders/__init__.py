"""Rows as COPY delivers them, into a file of some form, chunk by chunk."""

from tidemill.connectors.encoders.encoder import Encoder
from tidemill.connectors.encoders.packed import Packed, Packing
from tidemill.connectors.encoders.plain import AsItIs, JsonArray
from tidemill.connectors.writers.output import Output
from tidemill.domain.form import Compression, FileFormat, Form

__all__ = ["Encoder", "open_encoder"]


def open_encoder(form: Form, output: Output) -> Encoder:
    """InvalidInput if the format needs an extra that is not installed."""
    if form.compression is Compression.NONE:
        return _encoder(form, output)
    packing = Packing(output, form.compression)
    return Packed(_encoder(form, packing), packing)


def _encoder(form: Form, output: Output) -> Encoder:
    match form.format:
        case FileFormat.CSV | FileFormat.NDJSON:
            return AsItIs(output)
        case FileFormat.JSON:
            return JsonArray(output)
        case FileFormat.XLSX:
            from tidemill.connectors.encoders.xlsx import XlsxEncoder  # noqa: PLC0415  a zip that others do not need

            return XlsxEncoder(form, output)
        case FileFormat.PARQUET:
            from tidemill.connectors.encoders.parquet import ParquetEncoder  # noqa: PLC0415  an extra

            return ParquetEncoder(form, output)
