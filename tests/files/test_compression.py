"""Compressed files: decompressed while they are read, with limits."""

import gzip
import io
import json
import sys
import zipfile
import zlib

import pytest

from files.reading import MB, opened, told, walk
from tidemill.core.errors import InvalidInput
from tidemill.files import compression
from tidemill.files.byte_streams import STREAM_READ_BYTES
from tidemill.files.compression import DECOMPRESSORS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS = b"".join(b'{"n":%d}\n' % n for n in range(3_000))
INPUTS = [{"n": n} for n in range(3_000)]


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def zstd_compressed(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKED = {
    "gzip": gzip.compress(ROWS),
    "zstd": zstd_compressed(ROWS),
    "zip": zipped(("rows.ndjson", ROWS), ("__MACOSX/rows.ndjson", b"x"), ("folder/", b""), ("folder/.DS_Store", b"x")),
}


def layout(compression: str, kind: str = "ndjson") -> dict[str, str]:
    return {"format": kind, "compression": compression}


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_file_is_read(kind: str) -> None:
    assert told(PACKED[kind], layout(kind)) == (INPUTS, None)


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_file_resumes_from_checkpoint(kind: str) -> None:
    first = opened(PACKED[kind], layout(kind)).read(1_700, MB)
    rest = walk(opened(PACKED[kind], layout(kind), json.loads(json.dumps(first.checkpoint))), 1_000)
    assert [read.value for read in rest] == INPUTS[1_700:]


@pytest.mark.parametrize("kind", PACKED)
def test_compressed_csv_resumes_from_checkpoint(kind: str) -> None:
    rows = b"id,name\n" + b"".join(b"%d,x\n" % n for n in range(2_000))
    data = {"gzip": gzip.compress(rows), "zstd": zstd_compressed(rows), "zip": zipped(("a.csv", rows))}[kind]
    first = opened(data, layout(kind, "csv")).read(3, MB)
    (second, *_) = walk(opened(data, layout(kind, "csv"), first.checkpoint), 1_000)
    assert second.value == {"id": "3", "name": "x"}


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_concatenated_compressed_streams_are_read_as_one(kind: str) -> None:
    twice = PACKED[kind] + PACKED[kind]
    assert told(twice, layout(kind)) == (INPUTS + INPUTS, None)


def test_gzip_members_after_more_zeros_than_one_read_are_read() -> None:
    padded = PACKED["gzip"] + bytes(3 * STREAM_READ_BYTES) + PACKED["gzip"]
    assert told(padded, layout("gzip")) == (INPUTS + INPUTS, None)
    _, problem = told(padded + bytes(1) + b"x" * 20, layout("gzip"))
    assert "The gzip file is damaged" in str(problem)


def test_gzip_zero_padding_and_zstd_skippable_frames_are_ignored() -> None:
    assert told(PACKED["gzip"] + bytes(700_000), layout("gzip")) == (INPUTS, None)
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert told(skipped + PACKED["zstd"] + skipped, layout("zstd")) == (INPUTS, None)


RANDOM = b"".join(b'"%d"\n' % zlib.crc32(b"%d" % n) for n in range(100_000))


def test_zstd_file_of_too_many_frames_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "ZSTD_FRAMES_MAX", 100)
    skipped = b"\x50\x2a\x4d\x18" + bytes(4)
    assert told(skipped * 99 + PACKED["zstd"], layout("zstd")) == (INPUTS, None)
    _, problem = told(skipped * 100 + PACKED["zstd"], layout("zstd"))
    assert "more than 100 frames" in str(problem)


@pytest.mark.parametrize(
    ("kind", "message"), [("gzip", "The gzip file is truncated"), ("zstd", "The zstd file is truncated")]
)
def test_truncated_compressed_file_reports_error_after_good_rows(kind: str, message: str) -> None:
    data = gzip.compress(RANDOM) if kind == "gzip" else zstd_compressed(RANDOM)
    found, error = told(data[: len(data) // 2], layout(kind), rows=7_000)
    assert message in (error or "")
    assert 30_000 < len(found) < 70_000
    assert found == [json.loads(line) for line in RANDOM.split(b"\n")[: len(found)]]


@pytest.mark.parametrize("kind", PACKED)
def test_damaged_compressed_file_reports_error(kind: str) -> None:
    data = bytearray(PACKED[kind])
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    _, error = told(bytes(data), layout(kind))
    assert "damaged" in (error or "") or "cut off" in (error or "")


@pytest.mark.parametrize("kind", PACKED)
def test_uncompressed_file_is_rejected_when_compression_is_set(kind: str) -> None:
    for data in (b"", b"x", b"id,name\n1,2\n"):
        with pytest.raises(InvalidInput):
            opened(data, layout(kind)).read(10, MB)


@pytest.mark.parametrize("kind", PACKED)
def test_compression_bomb_is_rejected_by_ratio(kind: str) -> None:
    rows = (b'"%s"\n' % (b"0" * 100_000)) * 300
    data = {"gzip": gzip.compress(rows), "zstd": zstd_compressed(rows), "zip": zipped(("a.ndjson", rows))}[kind]
    found, error = told(data, layout(kind), rows=10)
    assert error == "The file decompresses to more than 200 times its size"
    assert 0 < len(found) < 300


@pytest.mark.parametrize("kind", PACKED)
def test_compression_bomb_is_rejected_by_uncompressed_size(kind: str) -> None:
    data = {"gzip": gzip.compress(RANDOM), "zstd": zstd_compressed(RANDOM), "zip": zipped(("a", RANDOM))}[kind]
    found, error = told(data, layout(kind), max_bytes=MB)
    assert error == "The file is larger than 1 MB when decompressed"
    assert 60_000 < len(found) < 100_000


@pytest.mark.parametrize("members", [(), (("a.csv", b"x"), ("b.csv", b"y"))])
def test_zip_of_records_must_contain_exactly_one_file(members: tuple[tuple[str, bytes], ...]) -> None:
    with pytest.raises(InvalidInput, match=f"contains {len(members)} files"):
        opened(zipped(*members), layout("zip")).read(10, MB)


def test_zstd_frame_with_gigabyte_window_is_rejected() -> None:
    stream = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 30})
    data = stream.compress(b'"x"\n' * 1000) + stream.flush()
    with pytest.raises(InvalidInput, match="damaged"):
        opened(data, layout("zstd")).read(10, MB)


def test_a_zstd_file_of_many_frames_is_read_with_bounded_pieces() -> None:
    frames = b"".join(zstd_compressed(b'{"n":%d}\n' % n) for n in range(3_000)) + zstd_compressed(RANDOM)
    pieces = list(DECOMPRESSORS["zstd"](io.BytesIO(frames)))
    assert b"".join(pieces) == ROWS + RANDOM
    assert max(map(len, pieces)) <= STREAM_READ_BYTES


@pytest.mark.parametrize("cut", [1, 3, 4, 20])
def test_a_zstd_file_without_its_last_bytes_is_cut_off(cut: int) -> None:
    _, error = told((PACKED["zstd"] * 2)[:-cut], layout("zstd"))
    assert error == "The zstd file is truncated"
