"""Rows as COPY delivers them, into a file of some form, chunk by chunk."""

from typing import Protocol

from tidemill.connectors.writers.output import Output
from tidemill.domain.form import Compression, FileFormat, Form

__all__ = ["Encoder", "open_encoder"]


class Encoder(Protocol):
    """Blocking. It is fed with what ``form.feed`` says, cut anywhere; closed, the output has the whole file."""

    def write(self, chunk: bytes, /) -> None: ...
    def close(self) -> None: ...


class AsItIs:
    """What comes is what goes."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, chunk: bytes, /) -> None:
        self._output.write(chunk)

    def close(self) -> None:
        self._output.flush()


def open_encoder(form: Form, output: Output) -> Encoder:
    if form.compression is Compression.NONE and form.format in (FileFormat.CSV, FileFormat.NDJSON):
        return AsItIs(output)
    raise NotImplementedError
