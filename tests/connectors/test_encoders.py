"""Every form of an export, read back by our own sources, whatever the cuts of its chunks."""

import gzip
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connectors.encoding import TEXTS, copy_csv, copy_ndjson, encoded, form, made, read
from tidemill.connectors.encoders.records import Records
from tidemill.domain.errors import InvalidInput
from tidemill.domain.form import Form

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
NAMES = [each.ending for each in FORMS]
text = st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=8
) | st.sampled_from(TEXTS)


def fed(form_: Form, rows: Sequence[tuple[str | None, str | None]]) -> bytes:
    if form_.feed == "csv":
        return copy_csv(("a", "b"), rows)
    return copy_ndjson({"a": a, "b": b} for a, b in rows)


@pytest.mark.parametrize("form_", FORMS, ids=NAMES)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1 << 16])
def test_nasty_texts_come_back_however_chunks_are_cut(form_: Form, size: int) -> None:
    rows = [(each, f"{n}") for n, each in enumerate(TEXTS)]
    found = read(form_, encoded(form_, fed(form_, rows), size))
    assert [(row["a"], row["b"]) for row in found] == rows


@pytest.mark.parametrize("form_", FORMS, ids=NAMES)
def test_no_rows_make_a_whole_file(form_: Form) -> None:
    assert read(form_, encoded(form_, fed(form_, []))) == []


@given(rows=st.lists(st.tuples(text, text)), cuts=st.lists(st.integers(1, 40), min_size=1))
def test_records_are_whole_wherever_they_are_cut(rows: list[tuple[str, str]], cuts: list[int]) -> None:
    lines = [copy_csv(row, []) for row in rows]
    data, records, taken = copy_csv(("a", 'b"\n'), rows), Records(), b""
    ends = {sum(map(len, lines[:n])) for n in range(len(lines) + 1)}
    at = step = 0
    while at < len(data):
        size = cuts[step % len(cuts)]
        taken += records.take(data[at : at + size])
        assert len(taken) in ends
        at, step = at + size, step + 1
    assert taken + records.rest() == b"".join(lines)


def test_a_last_record_without_an_end_is_one_and_half_a_quoted_one_is_not() -> None:
    records = Records()
    assert records.take(b"a\nx") + records.rest() == b"x\n"
    records = Records()
    records.take(b'a\n"x')
    with pytest.raises(InvalidInput, match="break off"):
        records.rest()


def test_csv_and_ndjson_are_what_copy_wrote() -> None:
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
def test_json_is_one_array_with_an_object_a_line(fed: bytes, array: bytes, size: int) -> None:
    found = encoded(form("json", *TWO), fed, size)
    assert found == array
    assert len(json.loads(found)) == fed.count(b"{")


def test_the_same_rows_make_the_same_bytes() -> None:
    rows = fed(FORMS[0], [(each, None) for each in TEXTS])
    for packed in ("gzip", "zstd"):
        how = form("csv", *TWO, compression=packed)
        assert encoded(how, rows, 5) == encoded(how, rows, 5)
    assert gzip.decompress(encoded(form("csv", *TWO, compression="gzip"), rows)) == rows
    assert encoded(form("csv", *TWO, compression="gzip"), rows)[4:8] == bytes(4), "the time in the header"


def test_what_is_compressed_by_itself_is_not_compressed_again() -> None:
    with pytest.raises(InvalidInput, match="compressed by itself"):
        form("parquet", *TWO, compression="gzip")


def test_nothing_is_cut_but_in_workbooks() -> None:
    assert [made(each, fed(each, [("x" * 40_000, "b")]))[1].cut_cells for each in FORMS] == [0] * 9 + [1, 0]
