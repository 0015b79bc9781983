"""Every export format, read back by Tidemill's readers, with chunks of any size."""

import gzip
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.encoding import TEXTS, copy_csv, copy_ndjson, encoded, form, made, read
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import OutputFileSpec
from tidemill.files.writers.copy_encoders import CsvRecordSplitter

TWO = (("a", "text"), ("b", "text"))
FORMS = [
    *(
        form(name, *TWO, compression=packed)
        for name in ("csv", "ndjson", "json")
        for packed in ("none", "gzip", "zstd")
    ),
    form("xlsx", *TWO),
    form("parquet", *TWO),
]
NAMES = [each.suffix for each in FORMS]
text = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
) | st.sampled_from(TEXTS)


def fed(form_: OutputFileSpec, rows: Sequence[tuple[str | None, str | None]]) -> bytes:
    if form_.postgres_copy_format == "csv":
        return copy_csv(("a", "b"), rows)
    return copy_ndjson({"a": a, "b": b} for a, b in rows)


@pytest.mark.parametrize("form_", FORMS, ids=NAMES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 16])
def test_encoder_round_trips_tricky_texts_for_any_chunk_size(form_: OutputFileSpec, size: int) -> None:
    rows = [(each, f"{n}") for n, each in enumerate(TEXTS)]
    found = read(form_, encoded(form_, fed(form_, rows), size))
    assert [(row["a"], row["b"]) for row in found] == rows


@pytest.mark.parametrize("form_", FORMS, ids=NAMES)
def test_encoder_without_rows_writes_readable_file(form_: OutputFileSpec) -> None:
    assert read(form_, encoded(form_, fed(form_, []))) == []


@given(rows=st.lists(st.tuples(text, text)), cuts=st.lists(st.integers(1, 40), min_size=1))
def test_csv_record_splitter_returns_complete_records_for_any_chunking(
    rows: list[tuple[str, str]], cuts: list[int]
) -> None:
    lines = [copy_csv(row, []) for row in rows]
    data, records, taken = copy_csv(("a", 'b"\n'), rows), CsvRecordSplitter(), b""
    ends = {sum(map(len, lines[:n])) for n in range(len(lines) + 1)}
    at = step = 0
    while at < len(data):
        size = cuts[step % len(cuts)]
        taken += records.extract_complete_records(data[at : at + size])
        assert len(taken) in ends
        at, step = at + size, step + 1
    assert taken + records.extract_last_record() == b"".join(lines)


def test_csv_record_splitter_accepts_missing_newline_and_rejects_open_quote() -> None:
    records = CsvRecordSplitter()
    assert records.extract_complete_records(b"a\nx") + records.extract_last_record() == b"x\n"
    records = CsvRecordSplitter()
    records.extract_complete_records(b'a\n"x')
    with pytest.raises(InvalidInput, match="truncated inside a quoted value"):
        records.extract_last_record()


def test_csv_and_ndjson_encoders_pass_copy_bytes_through() -> None:
    rows = [(each, None) for each in TEXTS]
    assert encoded(FORMS[0], copy_csv(("a", "b"), rows)) == copy_csv(("a", "b"), rows)
    assert encoded(form("ndjson", *TWO), b'{"a":1}\n') == b'{"a":1}\n'


@pytest.mark.parametrize(
    ("fed", "array"),
    [
        (b"", b"[]\n"),
        (b"{}\n", b"[\n{}\n]\n"),
        (b'{"a":1}\n{"a":2}\n', b'[\n{"a":1},\n{"a":2}\n]\n'),
        (b'{"a":1}\n{"a":2}', b'[\n{"a":1},\n{"a":2}\n]\n'),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 8, 100])
def test_json_encoder_writes_array_with_one_object_per_line(fed: bytes, array: bytes, size: int) -> None:
    found = encoded(form("json", *TWO), fed, size)
    assert found == array
    assert len(json.loads(found)) == fed.count(b"{")


def test_compressed_encoder_output_is_deterministic() -> None:
    rows = fed(FORMS[0], [(each, None) for each in TEXTS])
    for packed in ("gzip", "zstd"):
        how = form("csv", *TWO, compression=packed)
        assert encoded(how, rows, 5) == encoded(how, rows, 5)
    assert gzip.decompress(encoded(form("csv", *TWO, compression="gzip"), rows)) == rows
    assert encoded(form("csv", *TWO, compression="gzip"), rows)[4:8] == bytes(4), "the time in the header"


def test_parquet_spec_rejects_additional_compression() -> None:
    with pytest.raises(InvalidInput, match="has built-in compression"):
        form("parquet", *TWO, compression="gzip")


def test_only_xlsx_encoder_truncates_long_text() -> None:
    assert [made(each, fed(each, [("x" * 40_000, "b")]))[1].cut_cells for each in FORMS] == [0] * 9 + [1, 0]
