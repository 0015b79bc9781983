"""Compressed files and image archives: damaged ones give a declared error, the same for any chunks."""

import bz2
import gzip
import io
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

from hypothesis import strategies as st

from files.test_compression import zstd_compressed
from fuzz.mutations import mutated, mutated_zip, pack_zip
from fuzz.reading import (
    UNPACKED_LIMIT,
    CutFile,
    assert_reads_consistently,
    assert_safe,
    reads_of,
    run_or_reject,
)
from fuzz.targets import fuzz
from support.counted_work import count_calls, measure_peak_bytes
from tidemill.core.errors import InvalidInput
from tidemill.files.compression import open_decompressed
from tidemill.files.formats.image_zip import ImageZipReader

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = b"id,name\n" + b"".join(b"%d,name %d\n" % (n, n * n) for n in range(60))
GZIP_SAMPLES = (
    gzip.compress(ROWS, mtime=0),
    gzip.compress(ROWS[:100], mtime=0) + b"\x00" * 20 + gzip.compress(ROWS[100:], mtime=0),
    gzip.compress(b"", mtime=0) * 5 + gzip.compress(b"0" * 100_000, mtime=0),
)
ZSTD_SAMPLES = (
    zstd_compressed(ROWS),
    zstd_compressed(ROWS[:100]) + b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip" + zstd_compressed(ROWS[100:]),
    zstd_compressed(b"") * 5 + zstd_compressed(b"0" * 100_000),
)
ZIP_SAMPLES = (pack_zip([("rows.csv", ROWS)]), pack_zip([("__MACOSX/x", b""), ("rows.csv", ROWS), (".DS_Store", b"")]))
PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x20\x08\x06"
IMAGES = (
    *(PNG, b"GIF89a\x10\x00\x20\x00\xf0\x00", b"BM" + bytes(16) + b"\x10\x00\x00\x00\x20\x00\x00\x00", b"II*\x00"),
    *(b"RIFF\x00\x00\x00\x00WEBPVP8X" + bytes(18), b"\xff\xd8\xff\xe0\x00\x04ab\xff\xc0\x00\x11\x08\x00\x10\x00\x20"),
)
IMAGE_SAMPLES = (pack_zip([(f"{n}.png", image) for n, image in enumerate(IMAGES)]), pack_zip([("a/", b""), ("b", PNG)]))
STREAMS = {"gzip": GZIP_SAMPLES, "zstd": ZSTD_SAMPLES, "zip": ZIP_SAMPLES}
PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstd.compress}
LAYOUT = {"format": "csv"}
CUTS = st.lists(st.integers(0, 400), max_size=8)
SMALL_BYTES = 64 << 10
PEAK_FREE_BYTES = 6 << 20


def decompress(data: bytes | io.BytesIO, kind: str, size: int = 1 << 16) -> tuple[bytes, str | None]:
    """Return the decompressed bytes, and the error that ended them, if any."""
    found = bytearray()
    try:
        with closing(
            open_decompressed(io.BytesIO(data) if isinstance(data, bytes) else data, kind, UNPACKED_LIMIT)
        ) as stream:
            while piece := stream.read(size):
                assert len(piece) <= size
                found += piece
    except InvalidInput as error:
        assert_safe(error)
        return bytes(found), str(error)
    return bytes(found), None


def any_stream(kind: str) -> st.SearchStrategy[tuple[str, bytes]]:
    changed = mutated_zip(ZIP_SAMPLES) if kind == "zip" else mutated(STREAMS[kind], fragments=STREAMS[kind])
    return st.tuples(st.just(kind), changed)


STREAM = st.one_of([any_stream(kind) for kind in STREAMS])


@fuzz(
    examples=60,
    stream=STREAM,
    cuts=CUTS,
    size=st.sampled_from([1, 7, 4_096]),
)
def test_decompressed_bytes_do_not_depend_on_chunks(stream: tuple[str, bytes], cuts: list[int], size: int) -> None:
    kind, data = stream
    found, error = decompress(data, kind)
    assert decompress(data, kind, size) == (found, error)
    if kind != "zip":
        assert decompress(CutFile(data, cuts), kind)[1] == error
        with reads_of(max(16, size)):
            assert decompress(data, kind)[1] == error, f"reads of {size} bytes"
    if error is None:
        assert decompress(CutFile(data, cuts) if kind != "zip" else data, kind) == (found, None)


@fuzz(stream=STREAM, cuts=CUTS, at=st.integers(0, 99))
def test_rows_of_compressed_file_do_not_depend_on_interruptions(
    stream: tuple[str, bytes], cuts: list[int], at: int
) -> None:
    kind, data = stream
    assert_reads_consistently(data, LAYOUT | {"compression": kind}, cuts, at)


@fuzz(rows=st.binary(max_size=300), kind=st.sampled_from(list(STREAMS)), parts=st.integers(1, 4))
def test_compressed_bytes_are_decompressed_unchanged(rows: bytes, kind: str, parts: int) -> None:
    if kind == "zip":
        assert decompress(pack_zip([("rows", rows)]), kind) == (rows, None)
    else:
        assert decompress(PACKERS[kind](rows) * parts, kind) == (rows * parts, None)


@fuzz(
    examples=8, kind=st.sampled_from(["gzip", "zstd"]), count=st.sampled_from([500, 2_000]), body=st.binary(max_size=4)
)
def test_decompression_work_grows_linearly_with_the_number_of_parts(kind: str, count: int, body: bytes) -> None:
    pack = PACKERS[kind]
    small, large = (count_calls(partial(decompress, pack(body) * times, kind)) for times in (count, 4 * count))
    assert large <= 6 * small


@fuzz(examples=4, kind=st.sampled_from(["gzip", "zstd", "zip"]), size=st.sampled_from([8 << 20, 9 << 20]))
def test_decompression_memory_does_not_grow_with_the_content(kind: str, size: int) -> None:
    content = bytes(size)
    packed = pack_zip([("rows", content)]) if kind == "zip" else PACKERS[kind](content)

    def work() -> None:
        with closing(open_decompressed(io.BytesIO(packed), kind, UNPACKED_LIMIT)) as stream:
            while stream.read(SMALL_BYTES):
                pass

    assert measure_peak_bytes(work) <= PEAK_FREE_BYTES


@fuzz(examples=60, data=mutated_zip(IMAGE_SAMPLES, fragments=(*IMAGES, bz2.compress(PNG))), at=st.integers(0, 9))
def test_image_archive_gives_one_row_per_entry_or_a_declared_error(data: bytes, at: int) -> None:
    def read(checkpoint: dict[str, int]) -> list[Any]:
        rows = []
        with closing(ImageZipReader(io.BytesIO(data), "blob", checkpoint)) as reader:
            while (block := reader.read(1, 1 << 16)).inputs:
                for defect in block.defects.values():
                    assert_safe(defect["reason"])
                rows.append((block.inputs, dict(block.defects), dict(block.checkpoint)))
        return rows

    whole = run_or_reject(lambda: read({}), InvalidInput)
    if whole:
        done = at % len(whole)
        assert read(whole[done][2]) == whole[done + 1 :]
