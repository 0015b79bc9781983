"""Layout and encoding detection: the same for any chunks, options always win, and work is bounded."""

import gzip
import io
from functools import partial
from typing import Any

from hypothesis import strategies as st

from files.test_compression import zstd_compressed
from fuzz import test_compressed_files, test_text_files, test_workbooks
from fuzz.mutations import any_json, mutated, mutated_zip, pack_zip
from fuzz.reading import CutFile, assert_safe, read_file, run_or_reject
from fuzz.targets import fuzz
from support.counted_work import count_calls, measure_peak_bytes
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import LAYOUT_OPTIONS
from tidemill.files.layout import OPTIONS_BY_FORMAT, TEXT_ENCODINGS, parse_layout_options
from tidemill.files.layout_detection import detect_layout

TEXTS = (*test_text_files.CSV_SAMPLES, *test_text_files.NDJSON_SAMPLES, *test_text_files.JSON_SAMPLES)
GERMAN, RUSSIAN, JAPANESE = "id;stadt\n1;Köln\n2;Fürth\n", "id,имя\n1,Привет мир\n", "id,名前\n1,東京都千代田区\n"
ENCODED = tuple(
    text.encode(encoding)
    for text, encodings in (
        (GERMAN, ("cp1252", "utf-16", "utf-16-le", "mac-roman", "utf-8-sig")),
        (RUSSIAN, ("cp1251", "koi8-r", "utf-32", "utf-16-be")),
        (JAPANESE, ("cp932", "euc_jp", "gb18030")),
    )
    for encoding in encodings
)
SAMPLES = (*TEXTS, *ENCODED, b"PAR1", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"id\r1\r2\r")
NAMES = st.sampled_from(
    ["", "a.csv", "a.tsv", "a.json", "a.ndjson.gz", "a.zip", "a.zst", "A.XLSX", ".gz", "a.", "é/\x00.csv"]
)
TYPES = st.sampled_from(
    [
        "",
        "text/csv",
        "text/csv; charset=koi8-r; header=absent",
        "application/json",
        "text/csv; charset*=x''y",
        ";",
        "é",
        'a/b; charset="\x00',
    ]
)
OPTIONS = st.dictionaries(
    st.sampled_from([*LAYOUT_OPTIONS, "color"]),
    any_json(
        known=st.sampled_from(["csv", "xlsx", "tab", "\\t", "utf-8", "rot13", "none", "gzip", "lf", "true", ";", "'"])
    ),
    max_size=3,
)
CUTS = st.lists(st.integers(0, 200), max_size=6)


def detect(file: io.BytesIO, name: str, content_type: str, options: dict[str, Any]) -> str:
    try:
        return str(detect_layout(file, name=name, content_type=content_type, options=options).to_json())
    except InvalidInput as error:
        assert_safe(error)
        return str(error)


@fuzz(examples=60, data=mutated(SAMPLES, least=0) | st.binary(max_size=200), name=NAMES, content_type=TYPES, cuts=CUTS)
def test_detected_layout_does_not_depend_on_chunks_and_compression(
    data: bytes, name: str, content_type: str, cuts: list[int]
) -> None:
    found = detect(io.BytesIO(data), name, content_type, {})
    packed = [gzip.compress(data), gzip.compress(data[:7]) + gzip.compress(data[7:]), zstd_compressed(data)]
    if data[:2] not in (b"PK", b"\x1f\x8b") and not data.startswith((b"PAR1", b"\xd0\xcf", b"\x28\xb5")):
        results = {detect(io.BytesIO(one), name, content_type, {}).replace("zstd", "gzip") for one in packed}
        assert len(results) == 1, results
        if "'none'" in found:
            assert results == {found.replace("'none'", "'gzip'")}
    assert detect(CutFile(data, [cut + 8 for cut in cuts]), name, content_type, {}) == found


@fuzz(examples=60, data=mutated(SAMPLES, least=0), name=NAMES, options=OPTIONS)
def test_detection_keeps_every_given_option_or_rejects_it(data: bytes, name: str, options: dict[str, Any]) -> None:
    given = run_or_reject(
        lambda: parse_layout_options({k: v for k, v in options.items() if v is not None}), InvalidInput
    )
    found = run_or_reject(lambda: detect_layout(io.BytesIO(data), name=name, options=options), InvalidInput)
    if found is not None:
        assert given is not None
        wanted = given.to_json()
        assert found.to_json() | wanted == found.to_json()
        assert set(found.to_json()) <= OPTIONS_BY_FORMAT[str(found.format)]
        if found.format != "images":
            read_file(data, found.to_json(), block_rows=1_000)


@fuzz(
    examples=40,
    data=mutated_zip(
        (*test_workbooks.SAMPLES, *test_compressed_files.ZIP_SAMPLES, *test_compressed_files.IMAGE_SAMPLES)
    ),
    name=NAMES,
)
def test_detection_of_any_archive_gives_a_layout_or_a_declared_error(data: bytes, name: str) -> None:
    detect(io.BytesIO(data), name, "", {})


@fuzz(examples=3, piece=st.binary(min_size=1, max_size=6), encoding=st.sampled_from(TEXT_ENCODINGS))
def test_detection_work_and_memory_are_bounded_for_large_files(piece: bytes, encoding: str) -> None:
    small, large = piece * ((1 << 19) // len(piece)), piece * ((9 << 20) // len(piece))
    calls = [count_calls(partial(detect, io.BytesIO(data), "a.csv", "", {})) for data in (small, large)]
    assert calls[1] <= 20 * calls[0] + 100_000
    packed = pack_zip([("a.csv", large)])
    assert measure_peak_bytes(lambda: detect(io.BytesIO(packed), "", "", {"encoding": encoding})) < 48 << 20
