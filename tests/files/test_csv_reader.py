"""CSV: rows that span lines, and invalid rows with their position."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from files.reading import Read, opened, walk
from support.counted_work import count_calls
from tidemill.core.errors import InvalidInput
from tidemill.files.formats.csv_reader import CsvToJsonConverter

CSV = {"format": "csv"}


def read(
    data: bytes | str, limit: int = 1_000, checkpoint: Mapping[str, int] | None = None, rows: int = 1, **layout: Any
) -> list[Read]:
    data = data.encode() if isinstance(data, str) else data
    return list(walk(opened(data, CSV | layout, checkpoint, limit=limit), rows))


def rows(data: bytes | str, limit: int = 1_000) -> list[Any]:
    """Return the input of a valid row, and the line of an invalid one."""
    return [
        json.loads(record.input) if record.defect is None else record.defect["line"] for record in read(data, limit)
    ]


def test_csv_record_becomes_object_of_strings() -> None:
    assert rows("id,name\n1,Ann\n2,\n") == [{"id": "1", "name": "Ann"}, {"id": "2", "name": ""}]


def test_csv_quoted_field_keeps_commas_quotes_and_newlines() -> None:
    assert rows('id,name\n1,"a,""b""\nc\r\nd"\n2,e\n') == [
        {"id": "1", "name": 'a,"b"\nc\r\nd'},
        {"id": "2", "name": "e"},
    ]


def test_csv_blank_lines_and_crlf_are_ignored() -> None:
    assert rows("id,name\r\n\r\n1,Ann\r\n\r\n\r\n2,Bob") == [{"id": "1", "name": "Ann"}, {"id": "2", "name": "Bob"}]


def test_csv_header_names_are_trimmed() -> None:
    assert rows(" id , name\n1,Ann\n") == [{"id": "1", "name": "Ann"}]


@pytest.mark.parametrize("header", [b"id,name", b'"id","name"', b'"id",name'])
def test_csv_byte_order_mark_is_not_part_of_header(header: bytes) -> None:
    assert rows(b"\xef\xbb\xbf" + header + b"\n1,Ann\n") == [{"id": "1", "name": "Ann"}]


def test_tsv_fields_are_separated_by_tabs() -> None:
    (record,) = read("id\tname\n1\ta,b\n", format="tsv")
    assert record.value == {"id": "1", "name": "a,b"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "The file is empty"),
        (b"\n", "empty"),
        (b"id,na\x00me\n1,2\n", "NUL"),
        (b"id,na\xffme\n1,2\n", "UTF-8"),
        (b"id,na\rme\n1,2\n", "Cannot read the header as CSV: Row has a carriage return in an unquoted field$"),
        (b"\x8f\x01\r\xa7,\x10\n\xfe", "Cannot read the header as CSV: .* The file may be binary or compressed.$"),
    ],
)
def test_csv_without_usable_header_is_rejected(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(data)


def test_csv_columns_without_a_name_or_with_a_repeated_name_get_derived_names() -> None:
    (record,) = read("id,,id,id_2\n1,2,3,4\n")
    assert record.value == {"id": "1", "column_2": "2", "id_3": "3", "id_2": "4"}


@pytest.mark.parametrize(
    ("layout", "data"),
    [
        ({"skip_lines": 2}, "a title\n\nid,name\n1,a\n2,b\n"),
        ({"comment": "#"}, "# one\nid,name\n1,a\n  # two\n2,b\n# three\n"),
        ({"footer_lines": 2}, "id,name\n1,a\n2,b\n\nTotal,2\n"),
        ({"table_lines": 3}, "id,name\n1,a\n2,b\nother,table\n3,c\n"),
        ({"skip_lines": 1, "table_lines": 3}, "title\nid,name\n1,a\n2,b\nother,table\n"),
        ({"trailing_delimiter": True}, "id,name,\n1,a,\n2,b,\n"),
        ({"trailing_delimiter": True}, "id,name\r\n1,a,\r\n2,b,\r\n"),
        ({"header_rows": 2}, "i,\nd,name\n1,a\n2,b\n"),
        ({"delimiter": "||"}, "id||name\n1||a\n2||b\n"),
        ({"delimiter": "||"}, '"id"||name\r\n"1"||a\r\n2||"b"\r\n'),
        ({"delimiter": "blanks"}, 'id   name\n1 \t a\n  2    "b"  \n'),
        ({"escape": "\\"}, '"id",name\n"1",a\n2,"b"\n'),
        ({"short_rows": "pad", "long_rows": "cut"}, "id,name\n1,a,more\n2,b,,\n"),
        ({"line_end": "\r"}, "id,name\r1,a\r\n2,b\n"),
    ],
)
@pytest.mark.parametrize("rows", [1, 2, 100])
def test_csv_layout_options_select_the_table_and_resume_at_checkpoints(
    layout: dict[str, Any], data: str, rows: int
) -> None:
    records = read(data, rows=rows, **layout)
    names = ["i d", "i name"] if "header_rows" in layout else ["id", "name"]
    assert [record.value for record in records] == [dict(zip(names, row, strict=True)) for row in ("1a", "2b")]
    again = [(r.input, r.line) for r in read(data, checkpoint=records[0].checkpoint, rows=rows, **layout)]
    assert again == ([] if rows > 1 else [(r.input, r.line) for r in records[1:]])


def test_csv_short_row_is_padded_only_if_option_is_set() -> None:
    assert rows("id,name\n1\n") == [2]
    (record,) = read("id,name\n1\n", short_rows="pad")
    assert record.value == {"id": "1", "name": ""}


def test_csv_value_after_trailing_delimiter_is_reported() -> None:
    good, bad = read("id,name,\n1,a,\n2,b,c\n", trailing_delimiter=True)
    assert good.value == {"id": "1", "name": "a"}
    assert bad.defect is not None
    assert bad.defect["reason"] == "Row has 3 fields, but the header has 2"


def test_csv_row_that_repeats_the_header_is_reported() -> None:
    found = read("id,name\n1,a\nid,name\n2,b\n", rows=100)
    assert [record.defect and record.defect["reason"] for record in found] == [None, "Row repeats the header", None]


def test_csv_backslash_escapes_only_quotes_and_itself() -> None:
    (record,) = read('id,name\n"1 \\"a\\" \\\\","C:\\dir \\n"\n', escape="\\")
    assert record.value == {"id": '1 "a" \\', "name": "C:\\dir \\n"}


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ('1,"x,"y, z",3', ["1", '"x', "y, z", "3"]),
        ('1,x,""y, z",3', ["1", "x", '"y, z', "3"]),
        ('1,x,"y "z" w",3', ["1", "x", 'y "z" w', "3"]),
    ],
)
def test_csv_row_with_misplaced_quote_is_salvaged_if_one_reading_fits(line: str, fields: list[str]) -> None:
    (first, record, last) = read(f"a,b,c,d\n1,2,3,4\n{line}\n5,6,7,8\n")
    assert list(record.value.values()) == fields
    assert (first.defect, record.defect, last.defect) == (None, None, None)


@pytest.mark.parametrize("line", ['1,x,"y, z,3', '1,x,y,"3', '1,"a,"b,"c",4'])
def test_csv_row_with_misplaced_quote_is_reported_alone_if_no_reading_is_certain(line: str) -> None:
    (first, record, last) = read(f"a,b,c,d\n1,2,3,4\n{line}\n5,6,7,8\n")
    assert (first.defect, last.defect) == (None, None)
    assert record.defect is not None


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"1", "Row has 1 fields, but the header has 2"),
        (b"1,2,3", "Row has 3 fields, but the header has 2"),
        (b"1,a\x00b", "Row contains a NUL character"),
        (b"1,\xff\xfe", "Row is not valid UTF-8"),
        (b"1," + b"x" * 2_000, "Row is longer than 1000 bytes|field larger"),
        (b'1,"x\n' + b"y" * 2_000 + b'"', "Row is longer than 1000 bytes|field larger"),
        (b"a\rb,2", "Row has a carriage return in an unquoted field"),
    ],
)
def test_csv_bad_record_reports_first_line_and_reason(record: bytes, reason: str) -> None:
    data = b'id,name\n0,"two\nlines"\n' + record + b"\n9,last\n"
    first, bad, *_, last = read(data)
    assert json.loads(first.input) == {"id": "0", "name": "two\nlines"}
    assert json.loads(last.input) == {"id": "9", "name": "last"}
    assert bad.defect is not None
    assert (bad.defect["line"], bad.defect["code"]) == (4, "invalid")
    assert any(part in bad.defect["reason"] for part in reason.split("|"))


def test_csv_bad_record_keeps_its_original_text() -> None:
    for record in ("lonely", "one,two,three", "lo\rnely,2"):
        (bad,) = read(f"id,name\n{record}\n")
        assert bad.defect is not None
        assert bad.defect["value"][:2] == record[:2]
        assert json.loads(bad.input)[:2] == record[:2]


def test_csv_oversized_line_fails_alone() -> None:
    data = "id,name\n" + "x" * 10 + ',"' + "y" * 50 + '"\n' + "3,c\n4,d\n"
    assert rows(data, limit=20) == [2, {"id": "3", "name": "c"}, {"id": "4", "name": "d"}]


def test_csv_oversized_multiline_record_is_rejected() -> None:
    piece = '"' + "x" * 40 + "\n" + "y" * 40 + '"'
    first, *_ = read(f"a,b,c,d\n{piece},{piece},{piece},{piece}\n1,2,3,4\n", limit=100)
    assert first.defect is not None


def test_csv_unclosed_quote_fails_one_record_and_keeps_later_rows() -> None:
    first, bad, *others = read('id,name\n1,a\n2,"b\n3,c\n4,d\n')
    assert first.defect is None
    assert bad.defect is not None
    assert bad.defect["line"] == 3
    assert [json.loads(record.input)["id"] for record in others] == ["3", "4"], "the rows behind it are not lost"


def test_csv_unclosed_quote_in_large_file_fails_one_record() -> None:
    data = 'id,name\n1,"b\n' + "2,c\n" * 50_000
    bad, *good = read(data, limit=4_000_000, rows=10_000)
    assert bad.defect is not None
    assert len(good) == 50_000


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
        checkpoint = json.loads(json.dumps(record.checkpoint))  # as the database returns it
        assert read(data, limit=100, checkpoint=checkpoint) == records[n:]


@given(contents())
def test_csv_reading_resumes_from_any_checkpoint(data: bytes) -> None:
    assert_resumes(data)


@given(st.binary(max_size=200), st.sampled_from([b'"', b",", b"\n", b"\r\n", b"x" * 150]))
def test_csv_reading_of_garbage_resumes_from_any_checkpoint(data: bytes, salt: bytes) -> None:
    rubbish = b"id,name\n" + salt.join([data[:60], data[60:120], data[120:]])
    assume(b"\r" not in rubbish.split(b"\n")[0])
    assert_resumes(rubbish)


@given(st.lists(good_rows, max_size=12))
def test_csv_round_trip_preserves_fields(written: list[list[str]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows([["id", "name"], *written])
    assert rows(out.getvalue()) == [{"id": id_, "name": name} for id_, name in written if id_ or name]


def test_csv_value_with_part_of_a_delimiter_is_escaped() -> None:
    (found,) = read("id\t\tname\n1\t\ta\tb\n", delimiter="\t\t")
    assert found.value == {"id": "1", "name": "a\tb"}


def facts(records: list[Read]) -> list[object]:
    return [(record.input, record.line, record.defect) for record in records]


odd = st.sampled_from(["", "\\", '"', "a\tb", "ü€😀", "\x7f", "%s", "x" * 120, "\r", "'", "a\x00", "\udcff"])
pieces = st.one_of(fields, odd, st.sampled_from(["plain", "1", "true"]))


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Return mostly valid rows with some unusual ones, with and without quotes, also misplaced quotes."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    rows = draw(st.lists(st.lists(pieces, min_size=2, max_size=2), max_size=30))
    rows += draw(st.lists(st.lists(pieces, max_size=4), max_size=3))
    quote = draw(st.sampled_from(["", '"']))
    draw(st.randoms()).shuffle(rows)
    text = end.join(["id,name", *(",".join(quote + field + quote for field in row) for row in rows)])
    return (text + end).encode(errors="surrogateescape")


@given(files(), st.integers(1, 200))
@settings(max_examples=300)
def test_csv_block_reading_matches_record_by_record_reading(data: bytes, rows: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CsvToJsonConverter, "convert_lines", lambda *_: None)
        careful = facts(read(data, limit=100))
    assert facts(read(data, limit=100, rows=rows)) == careful


def test_csv_unclosed_quote_before_quoted_rows_fails_one_record() -> None:
    data = 'id,name\n1,a\n2,"b\n' + '3,"c"\n' * 10_000
    records = read(data, limit=1_000_000, rows=20_000)
    assert len(records) == 10_002
    assert [record.line for record in records if record.defect] == [3]


def test_csv_unclosed_quote_beyond_row_limit_fails_one_record() -> None:
    data = 'id,name\n1,"b\n' + "2,c\n" * 1_000
    bad, *good = read(data, limit=500, rows=5_000)
    assert bad.defect is not None
    assert "longer than 500 bytes or has an unclosed quote" in bad.defect["reason"]
    assert len(good) == 1_000


def test_csv_line_numbers_are_listed_only_when_they_differ_from_row_numbers() -> None:
    source = opened(b'id,name\n1,a\n2,"b\nc"\n\n3,d\n', CSV)
    block = source.read(100, 1_000)
    assert (source.first_line, block.lines) == (2, [2, 3, 6])
    assert opened(b"id\n1\n2\n", CSV).read(100, 1_000).lines is None


def test_csv_bad_byte_reports_line_and_byte_offset() -> None:
    good = b"1,Ann\n" * 20_000
    data = b"id,name\n" + good + b"2,J\xfcrgen\n" + good
    bad = [record for record in read(data, rows=7_000) if record.defect]
    assert [(record.line, record.defect and record.defect["byte_offset"]) for record in bad] == [
        (20_002, data.index(b"\xfc"))
    ]


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf-16-le", "id,name\n1,Jürgen €\n"),
        ("utf-16-be", "id,name\n1,Jürgen €\n"),
        ("utf-16", "id,name\n1,Jürgen €\n"),
        ("utf-8-sig", "id,name\n1,Jürgen €\n"),
        ("cp1252", "id,name\n1,Jürgen €\n"),
        ("latin-1", "id,name\n1,Jürgen ¤\n"),
        ("shift_jis", "id,name\n1,日本\n"),
    ],
)
def test_csv_is_decoded_from_other_encodings(encoding: str, text: str) -> None:
    (record,) = read(text.encode(encoding), encoding=encoding)
    assert record.value == {"id": "1", "name": text.rsplit(",", maxsplit=1)[-1].strip()}


def test_csv_byte_undefined_in_encoding_reports_byte_offset() -> None:
    data = "id,name\n".encode("cp1252") + "1,ü€\n".encode("cp1252") * 5 + b"2,\x81\n3,x\n"
    (bad,) = [record for record in read(data, encoding="cp1252", rows=100) if record.defect]
    assert bad.defect is not None
    assert (bad.line, bad.defect["byte_offset"]) == (7, data.index(b"\x81"))
    assert bad.defect["reason"] == "Row is not valid CP1252"


def test_csv_broken_utf16_surrogate_reports_byte_offset() -> None:
    data = "id,name\n1,ä\n".encode("utf-16-le") + "2,".encode("utf-16-le") + b"\x00\xd8" + "\n3,c\n".encode("utf-16-le")
    first, bad, last = read(data, encoding="utf-16-le", rows=100)
    assert bad.defect is not None
    assert bad.defect["byte_offset"] == data.index(b"\x00\xd8\n")
    assert (first.value["name"], last.value["name"]) == ("ä", "c")


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16-le"])
def test_csv_in_other_encodings_resumes_from_checkpoint(encoding: str) -> None:
    data = ("id,name\n" + "".join(f"{n},ü{n}\n" for n in range(20))).encode(encoding)
    records = read(data, encoding=encoding)
    for n, record in enumerate(records, 1):
        assert read(data, encoding=encoding, checkpoint=record.checkpoint) == records[n:]


def test_csv_without_header_numbers_columns_and_keeps_first_row() -> None:
    source = opened(b"1,Ann\n2,Bob\n", CSV | {"header": False})
    assert (source.columns, source.first_line) == (["column_1", "column_2"], 1)
    assert [record.value["column_2"] for record in walk(source, 10)] == ["Ann", "Bob"]


def test_csv_with_header_only_has_no_rows() -> None:
    source = opened(b"id,name\n", CSV)
    assert source.columns == ["id", "name"]
    assert source.read(10, 1_000).inputs == []


@pytest.mark.parametrize("header", ["id,name\n1,a\n", "\n\n id ,name\n1,a\n", '"id","name"\n1,a\n'])
def test_csv_columns_are_available_before_reading_and_at_checkpoint(header: str) -> None:
    (record,) = read(header)
    again = opened(header.encode(), CSV, record.checkpoint)
    assert again.columns == ["id", "name"]
    assert again.read(10, 1_000).inputs == []


def test_csv_lines_may_end_with_carriage_return_only() -> None:
    assert [record.value for record in read("id,name\r1,a\r2,b\r", line_end="\r")] == [
        {"id": "1", "name": "a"},
        {"id": "2", "name": "b"},
    ]


def test_csv_quote_character_can_be_changed_or_disabled() -> None:
    (single,) = read("id;name\n1;'a;b'\n", delimiter=";", quote="'")
    (none,) = read('id,name\n1,"a\n', quote="")
    assert (single.value["name"], none.value["name"]) == ("a;b", '"a')


def test_csv_with_ten_thousand_columns_is_read() -> None:
    header = ",".join(f"c{n}" for n in range(10_000))
    (record,) = read(f"{header}\n{','.join('x' * 10_000)}\n", limit=1_000_000)
    assert len(record.value) == 10_000


def test_csv_cell_of_two_megabytes_is_read() -> None:
    text = "x" * 2_000_000
    (record,) = read(f'id,name\n1,"{text}"\n', limit=4_000_000)
    assert record.value["name"] == text


def test_csv_block_size_is_bounded_by_requested_bytes() -> None:
    source = opened(b"id,name\n" + b"1,%s\n" % (b"x" * 1_000) * 10_000, CSV)
    sizes = []
    while (block := source.read(100_000, 2_000_000)).inputs:
        sizes.append(sum(map(len, block.inputs)))
    assert sum(sizes) > 10_000_000
    assert max(sizes) < 3_000_000


@pytest.mark.parametrize("end", ["", 'x"y,"z"w\n', 'a",b\n1,2\n', "\n" * 3_000])
def test_csv_unclosed_quotes_on_every_line_are_found_in_linear_work(end: str) -> None:
    def work(lines: int) -> int:
        data = "a,b,c\n" + 'a",b,"c\n' * lines + end
        return count_calls(lambda: read(data, limit=1 << 20, rows=1_000))

    assert work(800) <= 6 * work(200)


LINES = st.lists(
    st.sampled_from(['a",b,"c', '"a', 'a"', "1,2,3", '"x,1",2,3', 'x"y,"z"w', "", '"', '""', '"""']), max_size=12
)


@given(LINES, st.integers(6, 60))
def test_csv_scan_that_continues_an_earlier_one_gives_the_same_rows(lines: list[str], limit: int) -> None:
    """Each row is the same as if the reader were at its line for the first time."""
    data = "a,b,c\n" + "\n".join(lines)
    found = read(data, limit=limit)
    for n, record in enumerate(found):
        assert read(data, limit=limit, checkpoint=record.checkpoint)[:1] == found[n + 1 : n + 2]
