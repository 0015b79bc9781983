"""The byte output that writers and encoders share, and its compression. The same rows give the same bytes."""

import sys
import zlib
from collections.abc import Sequence
from typing import Protocol

from tidemill.core.csv_injection import escape_formula
from tidemill.core.file_format import Compression
from tidemill.core.result_grid import GridCell

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class ByteOutput(Protocol):
    """Takes pieces and gives nothing back: it need not be a file."""

    def write(self, piece: bytes, /) -> int: ...
    def flush(self) -> None: ...


def escape_formula_cells(cells: Sequence[GridCell]) -> list[GridCell]:
    """Cells of which no text can be read as a formula by a spreadsheet."""
    return [escape_formula(cell) if isinstance(cell, str) else cell for cell in cells]


class CopyEncoder(Protocol):
    """Blocking. It is fed with what ``form.feed`` says, cut anywhere; closed, the output has the whole file.

    ``cut_cells`` counts what the format has no room for. What is ``spreadsheet_safe`` comes so with the rows. One that
    is not closed writes nothing more.
    """

    @property
    def cut_cells(self) -> int: ...

    def write(self, chunk: bytes, /) -> None: ...
    def close(self) -> None: ...


GZIP_LEVEL = 3  # 64 MB/s of CSV where level 6 has 37, for files an eighth larger
ZSTD_LEVEL = 1  # 366 MB/s of CSV where level 3 has 170
_GZIP_WINDOW_BITS = 31  # the largest window, and a gzip header


class _Compressor(Protocol):
    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


class CompressedOutput:
    """An output that packs what it is given; finished, the other output has its end."""

    def __init__(self, output: ByteOutput, compression: Compression) -> None:
        self._output = output
        self._packer = _make_compressor(compression)

    def write(self, piece: bytes, /) -> int:
        if packed := self._packer.compress(piece):
            self._output.write(packed)
        return len(piece)

    def flush(self) -> None:
        """Nothing: what is still in the packer comes with its end."""

    def finish(self) -> None:
        self._output.write(self._packer.flush())
        self._output.flush()


class CompressedEncoder:
    """An encoder whose output is packed."""

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
