"""Compressed files: read as if they were not, and none fills the memory."""

import gzip
import io
import json
import zipfile
import zlib

import pytest
import zstandard

from connectors.reading import MB, opened, told, walk
from tidemill.domain.errors import InvalidInput

ROWS = b"".join(b'{"n":%d}\n' % n for n in range(3_000))
INPUTS = [{"n": n} for n in range(3_000)]


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return file.getvalue()


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACKED = {
    "gzip": gzip.compress(ROWS),
    "zstd": zstd(ROWS),
    "zip": zipped(("rows.ndjson", ROWS), ("__MACOSX/rows.ndjson", b"x"), ("folder/", b"")),
}


def layout(compression: str, kind: str = "ndjson") -> dict[str, str]:
    return {"format": kind, "compression": compression}


@pytest.mark.parametrize("kind", PACKED)
def test_what_was_packed_is_read(kind: str) -> None:
    assert told(PACKED[kind], layout(kind)) == (INPUTS, None)


@pytest.mark.parametrize("kind", PACKED)
def test_reading_goes_on_at_a_checkpoint(kind: str) -> None:
    first = opened(PACKED[kind], layout(kind)).read(1_700, MB)
    rest = walk(opened(PACKED[kind], layout(kind), json.loads(json.dumps(first.checkpoint))), 1_000)
    assert [read.value for read in rest] == INPUTS[1_700:]


@pytest.mark.parametrize("kind", PACKED)
def test_a_csv_resumes_in_the_middle_of_what_was_packed(kind: str) -> None:
    rows = b"id,name\n" + b"".join(b"%d,x\n" % n for n in range(2_000))
    data = {"gzip": gzip.compress(rows), "zstd": zstd(rows), "zip": zipped(("a.csv", rows))}[kind]
    first = opened(data, layout(kind, "csv")).read(3, MB)
    (second, *_) = walk(opened(data, layout(kind, "csv"), first.checkpoint), 1_000)
    assert second.value == {"id": "3", "name": "x"}


@pytest.mark.parametrize("kind", ["gzip", "zstd"])
def test_several_one_behind_the_other_are_one(kind: str) -> None:
    twice = PACKED[kind] + PACKED[kind]
    assert told(twice, layout(kind)) == (INPUTS + INPUTS, None)


def test_zeros_behind_a_gzip_file_and_frames_to_skip_are_nothing() -> None:
    assert told(PACKED["gzip"] + bytes(700_000), layout("gzip")) == (INPUTS, None)
    skipped = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    assert told(skipped + PACKED["zstd"] + skipped, layout("zstd")) == (INPUTS, None)


RANDOM = b"".join(b'"%d"\n' % zlib.crc32(b"%d" % n) for n in range(100_000))


@pytest.mark.parametrize(
    ("kind", "message"), [("gzip", "the gzip file is cut off"), ("zstd", "the zstd file is cut off")]
)
def test_a_file_that_is_cut_off_gives_its_good_rows_and_then_says_so(kind: str, message: str) -> None:
    data = gzip.compress(RANDOM) if kind == "gzip" else zstd(RANDOM)
    found, error = told(data[: len(data) // 2], layout(kind), rows=7_000)
    assert message in (error or "")
    assert 30_000 < len(found) < 70_000
    assert found == [json.loads(line) for line in RANDOM.split(b"\n")[: len(found)]]


@pytest.mark.parametrize("kind", PACKED)
def test_a_damaged_file_says_so(kind: str) -> None:
    data = bytearray(PACKED[kind])
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    _, error = told(bytes(data), layout(kind))
    assert "damaged" in (error or "") or "cut off" in (error or "")


@pytest.mark.parametrize("kind", PACKED)
def test_what_is_not_packed_at_all_is_refused(kind: str) -> None:
    for data in (b"", b"x", b"id,name\n1,2\n"):
        with pytest.raises(InvalidInput):
            opened(data, layout(kind)).read(10, MB)


@pytest.mark.parametrize("kind", PACKED)
def test_a_bomb_is_refused_by_its_ratio(kind: str) -> None:
    rows = (b'"%s"\n' % (b"0" * 100_000)) * 300
    data = {"gzip": gzip.compress(rows), "zstd": zstd(rows), "zip": zipped(("a.ndjson", rows))}[kind]
    found, error = told(data, layout(kind), rows=10)
    assert error == "the file unpacks to more than 200 times its size"
    assert 0 < len(found) < 300


@pytest.mark.parametrize("kind", PACKED)
def test_and_by_its_size(kind: str) -> None:
    data = {"gzip": gzip.compress(RANDOM), "zstd": zstd(RANDOM), "zip": zipped(("a", RANDOM))}[kind]
    found, error = told(data, layout(kind), max_bytes=MB)
    assert error == "the file unpacks to more than 1 MB"
    assert 60_000 < len(found) < 100_000


@pytest.mark.parametrize("members", [(), (("a.csv", b"x"), ("b.csv", b"y"))])
def test_a_zip_of_records_holds_one_file(members: tuple[tuple[str, bytes], ...]) -> None:
    with pytest.raises(InvalidInput, match=f"holds one file; this one holds {len(members)}"):
        opened(zipped(*members), layout("zip")).read(10, MB)


def test_a_frame_that_asks_for_a_gigabyte_of_memory_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=30, enable_ldm=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    data = stream.compress(b'"x"\n' * 1000) + stream.flush()
    with pytest.raises(InvalidInput, match="damaged"):
        opened(data, layout("zstd")).read(10, MB)
