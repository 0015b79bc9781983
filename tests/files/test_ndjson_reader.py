"""NDJSON: valid values are stored unchanged, and invalid ones have their line and reason."""

import io
import json
import re
import tracemalloc
from collections.abc import Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import Read, opened, walk
from tidemill.files.byte_streams import FileStream
from tidemill.files.formats.block_reader import DEFECT_VALUE_MAX_CHARS
from tidemill.files.formats.json_reader import NdjsonReader


def read(data: bytes, limit: int = 1_000, checkpoint: Mapping[str, int] | None = None, rows: int = 1) -> list[Read]:
    return list(walk(opened(data, {"format": "ndjson"}, checkpoint, limit=limit), rows))


def inputs(data: bytes) -> list[object]:
    return [msgspec.json.decode(record.input) for record in read(data) if record.defect is None]


def test_ndjson_line_becomes_record() -> None:
    assert inputs(b'{"a": 1}\n[2]\n"three"\n4\nnull\n') == [{"a": 1}, [2], "three", 4, None]


def test_ndjson_last_line_needs_no_newline() -> None:
    assert inputs(b'{"a": 1}\n{"a": 2}') == [{"a": 1}, {"a": 2}]


def test_ndjson_blank_lines_crlf_and_byte_order_mark_are_ignored() -> None:
    assert inputs(b'\xef\xbb\xbf{"a": 1}\r\n\r\n   \n\n{"a": 2}\r\n') == [{"a": 1}, {"a": 2}]


def test_ndjson_empty_file_has_no_records() -> None:
    assert read(b"") == read(b"\n\n") == read(b"\xef\xbb\xbf") == []


def test_ndjson_escaped_backslash_before_u0000_is_not_nul() -> None:
    assert inputs(b'{"a": "\\\\u0000"}\n') == [{"a": "\\u0000"}]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{nope}", "Row is not valid JSON"),
        (b'{"a": 1', "Row is not valid JSON"),
        (b'{"a": 1} {"b": 2}', "Row is not valid JSON"),
        (b'{"a": NaN}', "Row is not valid JSON"),
        (b'{"a": "\xff\xfe"}', "Row is not valid JSON"),
        (b"\xef\xbb\xbf{}", "Row is not valid JSON"),  # a byte order mark is allowed only at the beginning of the file
        (b'{"a": "\\ud800"}', "Row is not valid JSON: unpaired surrogate$"),
        (b'{"\\udc00": 1}', "Row is not valid JSON: unpaired surrogate$"),
        (b'{"a": "\\ud800"', "Row is not valid JSON: Input data was truncated"),
        (b'{"a": [-1e400]}', "Row contains a number that is too large"),
        (b"[" * 900, "Row is not valid JSON"),
        (b'{"a": "x\\u0000y"}', "Row contains a NUL character"),
        (b'{"a\\u0000": 1}', "Row contains a NUL character"),
        (b'{"a": "\\\\\\u0000"}', "Row contains a NUL character"),
        (b'{"a": "\x00"}', "Row is not valid JSON"),
        (b'{"a": "' + b"x" * 10_000 + b'"}', "Row is longer than 1000 bytes"),
        (b" " * 2_000 + b'{"a": 1}', "Row is longer than 1000 bytes"),
    ],
)
def test_ndjson_bad_line_reports_line_number_and_reason(line: bytes, reason: str) -> None:
    first, bad, last = read(b'{"a": 1}\n\n' + line + b'\n{"a": 2}\n')
    assert (first.defect, last.defect) == (None, None)
    assert bad.defect is not None
    assert (bad.defect["line"], bad.defect["code"]) == (3, "invalid")
    assert re.match(reason, bad.defect["reason"])
    assert len(bad.defect["value"]) <= DEFECT_VALUE_MAX_CHARS
    kept = json.loads(bad.input)
    assert isinstance(kept, str)
    assert "\x00" not in kept


@pytest.mark.parametrize(("size", "is_good"), [(99, True), (100, True), (101, False), (102, False)])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_ndjson_line_length_limit_is_inclusive(size: int, is_good: bool, end: bytes) -> None:
    line = b'"' + b"x" * (size - 2) + b'"'
    record, *rest = read(line + end + b"1\n" * bool(end), limit=100)
    assert (record.defect is None) == is_good
    assert [each.input for each in rest] == [b"1"] * bool(end)


def test_ndjson_huge_line_is_not_loaded_into_memory() -> None:
    class Endless(io.RawIOBase):
        """A line of 40 MB, and then a valid one."""

        left = 40 << 20

        def readable(self) -> bool:
            return True

        def seekable(self) -> bool:
            return True

        def seek(self, *_: int) -> int:
            return 0

        def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
            data = b"x" * min(len(buffer), self.left) or (b"\n1\n" if self.left == 0 else b"")
            self.left -= len(data)
            buffer[: len(data)] = data
            return len(data)

    tracemalloc.start()
    try:
        source = NdjsonReader(FileStream(io.BufferedReader(Endless())), {}, max_row_bytes=100_000)
        long, good = walk(source, rows=10)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert long.defect is not None
    assert good.input == b"1"
    assert peak < 8 << 20


lines = st.one_of(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
        max_leaves=6,
    ).map(lambda value: json.dumps(value, ensure_ascii=False).encode(errors="replace")),
    st.binary(max_size=60),
    st.just(b""),
    st.just(b'{"long": "' + b"x" * 200 + b'"}'),
)
contents = st.builds(
    lambda mark, body, end: mark + end.join(body) + end,
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
    st.lists(lines, max_size=12),
    st.sampled_from([b"\n", b"\r\n"]),
)


@given(st.one_of(contents, st.binary(max_size=300)))
def test_ndjson_reading_resumes_from_any_checkpoint(data: bytes) -> None:
    records = read(data, limit=100)
    for n, record in enumerate(records, 1):
        assert read(data, limit=100, checkpoint=record.checkpoint) == records[n:]


@given(st.one_of(contents, st.binary(max_size=300)), st.integers(2, 20))
def test_ndjson_block_reading_matches_record_by_record_reading(data: bytes, rows: int) -> None:
    def facts(records: list[Read]) -> list[object]:
        return [(record.input, record.line, record.defect) for record in records]

    assert facts(read(data, limit=100, rows=rows)) == facts(read(data, limit=100))


@given(contents)
def test_ndjson_every_non_blank_line_yields_one_record(data: bytes) -> None:
    said = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    records = read(data, limit=100)
    assert len(records) == len(said)
    for record, line in zip(records, said, strict=True):
        assert record.defect is not None or record.input == line.strip()
