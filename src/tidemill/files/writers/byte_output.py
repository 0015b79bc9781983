"""The output of writers and encoders, and its compression. The same rows give the same bytes."""

import sys
import zlib
from collections.abc import Sequence
from typing import Protocol

from tidemill.core.file_format import Compression, escape_formula
from tidemill.core.result_grid import GridCell

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class ByteOutput(Protocol):
    """A write-only output, such as a file or an upload."""

    def write(self, piece: bytes, /) -> int: ...
    def flush(self) -> None: ...


def escape_formula_cells(cells: Sequence[GridCell]) -> list[GridCell]:
    """Return the cells with text escaped that a spreadsheet could run as a formula."""
    return [escape_formula(cell) if isinstance(cell, str) else cell for cell in cells]


class CopyEncoder(Protocol):
    """Encodes the output of COPY, which is passed in chunks of any size. Calls block.

    The file is complete after ``close``; an encoder that is not closed writes nothing more. ``cut_cells`` counts the
    values that were truncated to fit the format. The query makes rows ``spreadsheet_safe``, not the encoder.
    """

    @property
    def cut_cells(self) -> int: ...

    def write(self, chunk: bytes, /) -> None: ...
    def close(self) -> None: ...


GZIP_LEVEL = 3  # 64 MB/s of CSV; level 6 has 37 MB/s and files that are 1/8 smaller
ZSTD_LEVEL = 1  # 366 MB/s of CSV; level 3 has 170 MB/s
_GZIP_WINDOW_BITS = 31  # the largest window, and a gzip header


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class CompressedOutput:
    """Compresses data into another output. ``finish`` writes the end."""

    def __init__(self, output: ByteOutput, compression: Compression) -> None:
        self._output = output
        self._packer = _make_compressor(compression)

    def write(self, piece: bytes, /) -> int:
        if compressed := self._packer.compress(piece):
            self._output.write(compressed)
        return len(piece)

    def flush(self) -> None:
        """Do nothing: ``finish`` writes the buffered data."""

    def finish(self) -> None:
        self._output.write(self._packer.flush())
        self._output.flush()


class CompressedEncoder:
    """An encoder with compressed output."""

    def __init__(self, inner: CopyEncoder, packing: CompressedOutput) -> None:
        self._inner = inner
        self._packing = packing
        self.write = inner.write

    @property
    def cut_cells(self) -> int:
        return self._inner.cut_cells

    def close(self) -> None:
        self._inner.close()
        self._packing.finish()


def _make_compressor(compression: Compression) -> _Compressor:
    if compression is Compression.GZIP:
        return zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
    options: dict[int, int] = {
        zstd.CompressionParameter.compression_level: ZSTD_LEVEL,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.ZstdCompressor(options=options)
