"""CSV, NDJSON and JSON arrays: any bytes give rows or a declared error, in bounded work and memory."""

import json
from functools import partial
from typing import Any

from hypothesis import strategies as st

from fuzz.mutations import mutated
from fuzz.reading import assert_reads_consistently, consume, read_file
from fuzz.targets import fuzz
from support.counted_work import count_calls, measure_peak_bytes
from tidemill.files.layout import TEXT_ENCODINGS
from tidemill.files.writers.copy_encoders import format_csv_line

CSV_SAMPLES = (
    b'id,name\n1,Ada\n2,"a,""b""\nc"\n\n3,\n4,\xc3\xa9\n',
    b"id;name;note\r\n1;x;\r\n2;'y;z';=1\r\n",
    b"\xef\xbb\xbfid\tname\n1\tx\n",
    b"a\n" + b"1\n" * 300,
)
CSV_FRAGMENTS = (b'"', b'""', b'"\n', b',"', b'",', b"\r\n", b"\r", b"\n\n", b",", b"'", b"\x00", b"x" * 5_000)
NDJSON_SAMPLES = (
    b'{"a": 1, "b": "x"}\n{"a": -1.5e3, "b": null}\n\n[1, "two", {"three": []}]\n"text"\n',
    b'\xef\xbb\xbf{"n": 12345678901234567890}\r\n{"u": "\\u00e9\\ud83d\\ude00"}',
    b'{"a": {}}\n' * 200,
)
JSON_SAMPLES = (
    b'[{"a": 1, "b": "x,]}\\""}, [1, [2]], "t", null, -0.5]\n',
    b'\xef\xbb\xbf [\n  {"n": 12345678901234567890},\n  {}\n]\n',
    b"[" + b",".join(b'{"n": %d}' % n for n in range(200)) + b"]",
)
JSON_FRAGMENTS = (
    *(b"[", b"]", b"{", b"}", b'"', b"\\", b"\\u0000", b"\\ud800", b"NaN", b"1e999", b",\n", b"9" * 400, b"null"),
    *(b"[" * 300, b'{"a":' * 300, b"[" * 12_000, b'"' + b"x" * 5_000 + b'"', b"[[]," * 2_000, b"9" * 4_500),
)
CUTS = st.lists(st.integers(0, 400), max_size=8)
DIALECTS = st.fixed_dictionaries(
    {"delimiter": st.sampled_from([",", ";", "\t", "|"]), "quote": st.sampled_from(['"', "'", ""])},
    optional={
        "keep_empty": st.booleans(),
        "header": st.booleans(),
        "encoding": st.sampled_from(TEXT_ENCODINGS),
        "line_end": st.sampled_from(["\n", "\r\n", "\r"]),
    },
)
BODIES = st.text('a",;\n\\{}[]:1', min_size=1, max_size=14).map(str.encode)
REPEATS = (400, 1_600)  # the larger one takes four times the work, if work is linear
WORK_RATIO_MAX, WORK_FREE_CALLS = 7, 20_000
PEAK_FREE_BYTES = 12 << 20  # buffers of the streams and a block; the files are larger


@fuzz(
    data=mutated(CSV_SAMPLES, fragments=CSV_FRAGMENTS) | st.binary(max_size=80),
    layout=DIALECTS,
    cuts=CUTS,
    at=st.integers(0, 99),
)
def test_csv_rows_do_not_depend_on_chunks_blocks_and_interruptions(
    data: bytes, layout: dict[str, Any], cuts: list[int], at: int
) -> None:
    assert_reads_consistently(data, {"format": "csv"} | layout, cuts, at)


@fuzz(
    data=mutated(NDJSON_SAMPLES, fragments=JSON_FRAGMENTS),
    encoding=st.sampled_from(TEXT_ENCODINGS),
    cuts=CUTS,
    at=st.integers(0, 99),
)
def test_ndjson_rows_do_not_depend_on_chunks_blocks_and_interruptions(
    data: bytes, encoding: str, cuts: list[int], at: int
) -> None:
    assert_reads_consistently(data, {"format": "ndjson", "encoding": encoding}, cuts, at)
    for row in assert_reads_consistently(data, {"format": "ndjson"}, cuts, at).rows:
        json.loads(row.input)


@fuzz(
    data=mutated(JSON_SAMPLES, fragments=JSON_FRAGMENTS) | st.binary(max_size=80).map(lambda rest: b"[" + rest),
    cuts=CUTS,
    at=st.integers(0, 99),
)
def test_json_array_rows_do_not_depend_on_chunks_blocks_and_interruptions(
    data: bytes, cuts: list[int], at: int
) -> None:
    for row in assert_reads_consistently(data, {"format": "json"}, cuts, at).rows:
        json.loads(row.input)


CELLS = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", " ", "'", '",\n"', "\ufeff", "\u2028", "\x85", "\x0b"]
)


@fuzz(rows=st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=6), mark=st.sampled_from([",", ";", "\t", "|"]))
def test_csv_reader_returns_cells_that_the_writer_wrote(rows: list[list[str]], mark: str) -> None:
    lines = [["a", "b"], *rows]
    data = "".join(format_csv_line(line, delimiter=mark) for line in lines).encode()
    found = read_file(data, {"format": "csv", "delimiter": mark}, block_rows=100)
    assert found.error is None
    assert [list(json.loads(row.input).values()) for row in found.rows] == rows


@fuzz(examples=40, format_=st.sampled_from(["csv", "ndjson", "json"]), body=BODIES)
def test_text_reader_work_grows_linearly_with_the_file(format_: str, body: bytes) -> None:
    head = {"csv": b"a,b,c\n", "ndjson": b"", "json": b"["}[format_]
    small, large = (count_calls(partial(consume, head + body * repeats, {"format": format_})) for repeats in REPEATS)
    assert large <= WORK_RATIO_MAX * small + WORK_FREE_CALLS, f"{small:,} calls, then {large:,}"


@fuzz(examples=6, format_=st.sampled_from(["csv", "ndjson", "json"]), body=BODIES)
def test_text_reader_memory_does_not_grow_with_the_file(format_: str, body: bytes) -> None:
    head = {"csv": b"a,b,c\n", "ndjson": b"", "json": b"["}[format_]
    data = head + body * ((2 << 20) // len(body))
    peak = measure_peak_bytes(lambda: consume(data, {"format": format_}))
    assert peak <= PEAK_FREE_BYTES, f"{peak:,} bytes"
