"""Comma-separated values: whole records over many lines, and every bad one with its place."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemill.connectors.csv import CsvSource
from tidemill.connectors.records import InputRecord
from tidemill.domain.errors import InvalidInput


def read(data: bytes | str, limit: int = 1_000, checkpoint: dict[str, Any] | None = None) -> list[InputRecord]:
    file = io.BytesIO(data.encode() if isinstance(data, str) else data)
    return list(CsvSource(file, max_row_bytes=limit).records(checkpoint or {}))


def rows(data: bytes | str, limit: int = 1_000) -> list[Any]:
    """The input of a good record, the line of a bad one."""
    return [
        json.loads(record.input) if record.defect is None else record.defect["line"] for record in read(data, limit)
    ]


def test_a_record_is_an_object_of_strings() -> None:
    assert rows("id,name\n1,Ann\n2,\n") == [{"id": "1", "name": "Ann"}, {"id": "2", "name": ""}]


def test_quotes_may_hold_commas_quotes_and_line_ends() -> None:
    assert rows('id,name\n1,"a,""b""\nc\r\nd"\n2,e\n') == [
        {"id": "1", "name": 'a,"b"\nc\r\nd'},
        {"id": "2", "name": "e"},
    ]


def test_blank_lines_and_windows_ends_are_nothing() -> None:
    assert rows("id,name\r\n\r\n1,Ann\r\n\r\n\r\n2,Bob") == [{"id": "1", "name": "Ann"}, {"id": "2", "name": "Bob"}]


def test_a_header_is_trimmed() -> None:
    assert rows(" id , name\n1,Ann\n") == [{"id": "1", "name": "Ann"}]


@pytest.mark.parametrize("header", [b"id,name", b'"id","name"', b'"id",name'])
def test_a_byte_order_mark_is_no_part_of_the_header(header: bytes) -> None:
    assert rows(b"\xef\xbb\xbf" + header + b"\n1,Ann\n") == [{"id": "1", "name": "Ann"}]


def test_tabs_may_separate() -> None:
    source = CsvSource(io.BytesIO(b"id\tname\n1\ta,b\n"), max_row_bytes=100, delimiter="\t")
    assert [json.loads(record.input) for record in source.records({})] == [{"id": "1", "name": "a,b"}]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"\n", "empty"),
        (b"id,id,name\n1,2,3\n", "twice: \\['id'\\]"),
        (b"id,,name\n1,2,3\n", "without a name"),
        (b"id,na\x00me\n1,2\n", "NUL"),
        (b"id,na\xffme\n1,2\n", "UTF-8"),
    ],
)
def test_a_file_without_a_usable_header_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(data)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1", "1 fields where the header has 2"),
        (b"1,2,3", "3 fields where the header has 2"),
        (b"1,a\x00b", "a NUL character cannot be stored"),
        (b"1,\xff\xfe", "not UTF-8"),
        (b"1," + b"x" * 2_000, "longer than 1000 bytes|field larger"),
        (b'1,"x\n' + b"y" * 2_000 + b'"', "longer than 1000 bytes|field larger"),
        (b"a\rb,2", "new-line character"),
    ],
)
def test_a_bad_record_is_kept_with_its_first_line_and_a_reason(record: bytes, reason: str) -> None:
    data = b'id,name\n0,"two\nlines"\n' + record + b"\n9,last\n"
    first, bad, *_, last = read(data)
    assert json.loads(first.input) == {"id": "0", "name": "two\nlines"}
    assert json.loads(last.input) == {"id": "9", "name": "last"}
    assert bad.defect is not None
    assert (bad.defect["line"], bad.defect["code"]) == (4, "invalid")
    assert any(part in bad.defect["reason"] for part in reason.split("|"))


def test_what_a_bad_record_said_is_kept() -> None:
    for record in ("lonely", "one,two,three", "lo\rnely,2"):
        (bad,) = read(f"id,name\n{record}\n")
        assert bad.defect is not None
        assert bad.defect["value"][:2] == record[:2]
        assert json.loads(bad.input)[:2] == record[:2]


def test_a_line_that_is_too_long_swallows_no_neighbour() -> None:
    data = "id,name\n" + "x" * 10 + ',"' + "y" * 50 + '"\n' + "3,c\n4,d\n"
    assert rows(data, limit=20) == [2, {"id": "3", "name": "c"}, {"id": "4", "name": "d"}]


def test_a_record_that_is_too_large_over_many_lines_is_bad() -> None:
    piece = '"' + "x" * 40 + "\n" + "y" * 40 + '"'
    first, *_ = read(f"a,b,c,d\n{piece},{piece},{piece},{piece}\n1,2,3,4\n", limit=100)
    assert first.defect is not None


def test_a_quote_that_is_never_closed_makes_a_bad_record() -> None:
    first, bad, *others = read('id,name\n1,a\n2,"b\n3,c\n4,d\n')
    assert first.defect is None
    assert bad.defect is not None
    assert bad.defect["line"] == 3
    assert [json.loads(record.input)["id"] for record in others] == ["3", "4"], "the rows behind it are not lost"


def test_a_quote_that_is_never_closed_in_a_large_file_is_found_soon() -> None:
    data = 'id,name\n1,"b\n' + "2,c\n" * 50_000
    assert len(read(data, limit=4_000_000)) == 50_001


fields = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
good_rows = st.lists(fields, min_size=2, max_size=2)
bad_rows = st.one_of(st.lists(fields, min_size=3, max_size=4), st.just(["x" * 150, "y"]))


@st.composite
def contents(draw: st.DrawFn) -> bytes:
    out = io.StringIO()
    end = draw(st.sampled_from(["\n", "\r\n"]))
    writer = csv.writer(out, lineterminator=end, quoting=draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])))
    writer.writerow(["id", "name"])
    for row in draw(st.lists(st.one_of(good_rows, bad_rows, st.just([])), max_size=12)):
        if row:
            writer.writerow(row)
        else:
            out.write(end)
    return out.getvalue().encode()


def assert_resumes(data: bytes) -> None:
    records = read(data, limit=100)
    for n, record in enumerate(records, 1):
        checkpoint = json.loads(json.dumps(record.checkpoint))  # as the database gives it back
        assert read(data, limit=100, checkpoint=checkpoint) == records[n:]


@given(contents())
def test_reading_from_any_checkpoint_gives_the_same_records(data: bytes) -> None:
    assert_resumes(data)


@given(st.binary(max_size=200), st.sampled_from([b'"', b",", b"\n", b"\r\n", b"x" * 150]))
def test_so_it_does_with_rubbish(data: bytes, salt: bytes) -> None:
    rubbish = b"id,name\n" + salt.join([data[:60], data[60:120], data[120:]])
    assume(b"\r" not in rubbish.split(b"\n")[0])
    assert_resumes(rubbish)


@given(st.lists(good_rows, max_size=12))
def test_what_was_written_is_read(written: list[list[str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "name"], *written])
    assert rows(out.getvalue()) == [{"id": id_, "name": name} for id_, name in written]
