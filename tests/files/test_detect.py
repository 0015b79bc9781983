"""Layout detection from a sample of the file; given options always win."""

import gzip
import io
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from files.test_compression import zipped, zstd_compressed
from support.workbooks import workbook
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileLayout
from tidemill.files.layout_detection import detect_layout
from tidemill.files.source_opener import open_block_reader

CSV = b"id,name\n1,Ann\n2,Bob\n"


def look(data: bytes, name: str = "", content_type: str = "", **given: Any) -> dict[str, Any]:
    return detect_layout(io.BytesIO(data), name=name, content_type=content_type, options=given).to_json()


def table() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"a": [1]}), file)
    return file.getvalue()


def test_detect_csv_returns_all_layout_options() -> None:
    assert look(CSV, "users.csv") == {
        "format": "csv",
        "compression": "none",
        "encoding": "utf-8",
        "delimiter": ",",
        "quote": '"',
        "header": True,
        "line_end": "\n",
    }


@pytest.mark.parametrize(
    ("data", "name", "content_type", "format_"),
    [
        (CSV, "a.csv", "", "csv"),
        (CSV, "", "text/csv; charset=utf-8", "csv"),
        (CSV, "", "", "csv"),
        (b"id\tname\n1\tx,y\n", "a.tsv", "", "tsv"),
        (b'{"a": 1}\n{"a": 2}\n', "", "", "ndjson"),
        (b'{"a": 1}\n', "a.json", "application/json", "ndjson"),
        (b'[{"a": 1}]', "a.json", "", "json"),
        (b'\xef\xbb\xbf\n [\n{"a": 1}\n]', "", "", "json"),
        (b"[1, 2]\n[3, 4]\n", "", "", "ndjson"),
        (workbook([["id"], [1]]), "", "", "xlsx"),
        (workbook([["id"], [1]]), "a.csv", "text/csv", "xlsx"),
        (table(), "", "", "parquet"),
        (zipped(("a.png", b"x"), ("b.JPG", b"y")), "a.zip", "", "images"),
    ],
)
def test_detect_format_from_content_name_and_media_type(
    data: bytes, name: str, content_type: str, format_: str
) -> None:
    assert look(data, name, content_type)["format"] == format_


@pytest.mark.parametrize(
    ("pack", "name", "compression"),
    [
        (gzip.compress, "a.csv.gz", "gzip"),
        (zstd_compressed, "a.csv.zst", "zstd"),
        (lambda data: zipped(("a.csv", data)), "a.zip", "zip"),
    ],
)
def test_detect_compression_from_magic_bytes(pack: Any, name: str, compression: str) -> None:
    rows = "id;name\n1;Jürgen\n2;Björn\n3;Käthe\n".encode("cp1252")
    for called in (name, ""):
        found = look(pack(rows), called)
        assert (found["format"], found["compression"], found["delimiter"]) == ("csv", compression, ";")
        assert found["encoding"] == "cp1252"
    source = open_block_reader(
        io.BytesIO(pack(rows)), FileLayout.from_json(look(pack(rows))), {}, max_row_bytes=1_000, max_bytes=1 << 20
    )
    assert source.read(1, 100).inputs == ['{"id":"1","name":"Jürgen"}'.encode()]


@pytest.mark.parametrize(
    ("text", "delimiter"),
    [
        ("a,b,c\n1,2,3\n", ","),
        ("a;b;c\n1,5;2;3\n2,5;3;4\n", ";"),
        ("a\tb\n1,0\t2\n", "\t"),
        ("a|b|c\n1|2, 3|4\n", "|"),
        ('name,about\nx,"one; two; three"\ny,"four; five; six"\n', ","),
        ('"a;b";"c"\n"1;2";"3"\n', ";"),
        ("a,b\n1,2\n1,2,3\n4,5\n", ","),
        ("alone\n1\n2\n", ","),
        ("", ","),
    ],
)
def test_detect_delimiter_that_gives_equal_field_counts(text: str, delimiter: str) -> None:
    assert look(text.encode(), "a.csv")["delimiter"] == delimiter


@pytest.mark.parametrize(
    ("encoding", "text", "found"),
    [
        ("utf-8-sig", "id,name\n1,Jürgen\n", "utf-8-sig"),
        ("utf-16", "id,name\n1,Jürgen\n", "utf-16-le"),
        ("utf-16-le", "id,name\n1,Jürgen\n", "utf-16-le"),
        ("utf-16-be", "id,name\n1,Jürgen\n", "utf-16-be"),
        ("cp1252", "id,stadt\n1,Köln\n2,Düsseldorf\n3,Fürth\n", "cp1252"),
        ("cp1252", "id,preis\n1,10 €\n2,20 €\n3,Größe für Öl\n", "cp1252"),
        ("cp1251", "id,name\n1,Привет мир\n2,Добрый день\n3,Как дела сегодня\n", "cp1251"),
        ("cp1250", "id,name\n1,Żółć gęślą jaźń\n2,Dzień dobry, proszę państwa\n3,Święta i źródło\n", "cp1250"),
    ],
)
def test_detect_text_encoding_from_content(encoding: str, text: str, found: str) -> None:
    assert look(text.encode(encoding), "a.csv")["encoding"] == found


def test_detect_encoding_from_few_non_ascii_bytes_far_into_file() -> None:
    ascii_rows = "".join(f"{n},Schmidt,Berlin\n" for n in range(100_000))
    text = f"id,name,stadt\n{ascii_rows}100001,Müller,Köln\n{ascii_rows}100002,Weiß,Ulm\n"
    assert look(text.encode("cp1252"), "a.csv")["encoding"] == "cp1252"
    assert look(text.encode(), "a.csv")["encoding"] == "utf-8"


@pytest.mark.parametrize("rows", [1, 2, 5, 50])
@pytest.mark.parametrize("bad", [b"\xff", b"M\xfcller", b"\xc3"])
def test_detect_utf8_despite_invalid_row(rows: int, bad: bytes) -> None:
    text = "id,name\n" + "1,Jürgen Müller\n" * rows
    assert look(text.encode() + b"2," + bad + b"\n", "a.csv")["encoding"] == "utf-8"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("gb18030", "北京市朝阳区建国路八十八号的客户需要在星期五之前收到所有货物和发票"),
        ("big5", "台北市信義區的客戶需要在星期五之前收到所有貨物和發票謝謝您的合作"),
        ("cp949", "서울특별시 강남구의 고객은 금요일까지 모든 상품과 송장을 받아야 합니다"),
        ("cp932", "東京都千代田区のお客様は金曜日までにすべての商品と請求書を受け取る必要があります"),
        ("koi8-r", "Клиент из Москвы должен получить все товары и счета до пятницы"),
        ("cp1252", "Größe, Ärger, Übung, façade, señor, crème brûlée, naïve, Å, Ø"),
    ],
)
def test_detect_does_not_mistake_other_encodings_for_utf8(encoding: str, text: str) -> None:
    found = look(("id,name\n" + f"1,{text.replace(',', ' ')}\n" * 20).encode(encoding), "a.csv")["encoding"]
    assert found != "utf-8"


@pytest.mark.parametrize(("end", "said"), [("\n", "\n"), ("\r\n", "\r\n"), ("\r", "\r")])
def test_detect_line_ending_from_content(end: str, said: str) -> None:
    layout = look(f"id,name{end}1,a{end}".encode(), "a.csv")
    assert layout["line_end"] == said
    source = open_block_reader(
        io.BytesIO(f"id,name{end}1,a{end}".encode()),
        FileLayout.from_json(layout),
        {},
        max_row_bytes=100,
        max_bytes=1_000,
    )
    assert source.read(10, 100).inputs == [b'{"id":"1","name":"a"}']


def test_detect_uses_charset_and_header_of_content_type() -> None:
    found = look(b"1,\xe4\n", "", "text/csv; charset=iso-8859-1; header=absent")
    assert (found["encoding"], found["header"]) == ("latin-1", False)


def test_detect_given_options_override_detection() -> None:
    given = {"delimiter": ";", "encoding": "windows-1251", "quote": "'", "header": "false", "format": "csv"}
    found = look(CSV, "a.json", **given)
    assert found | {"encoding": "cp1251", "header": False, "delimiter": ";", "quote": "'", "format": "csv"} == found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"format": "docx"},
            'format: must be one of "csv", "images", "json", "ndjson", "parquet", "tsv", "xlsx", not ',
        ),
        ({"encoding": "klingon"}, 'encoding: must be one of "utf-8", .*, not .klingon'),
        ({"encoding": "rot13"}, "encoding: must be one of"),
        ({"compression": "rar"}, 'compression: must be one of "none", "gzip", "zstd", "zip", not '),
        ({"delimiter": "ab"}, 'delimiter: must be "blanks" or 1 to 8 characters, .*, not "ab"$'),
        ({"delimiter": "\n"}, "must be .* 1 to 8 characters"),
        ({"escape": "/"}, 'escape: must be a backslash or empty, not "/"$'),
        ({"skip_lines": -1}, "skip_lines: must be a whole number from 0 to .*, not -1$"),
        ({"header_rows": "x"}, 'header_rows: must be a whole number from 0 to 10, not "x"$'),
        ({"short_rows": "drop"}, 'short_rows: must be one of "report", "pad", not '),
        ({"quote": "ab"}, 'quote: must be empty or one character, .*, not "ab"$'),
        ({"header": "maybe"}, "header: must be true or false"),
        ({"sheet": "one"}, "sheet: not an option for csv; the options are comment, compression, delimiter,"),
        ({"color": "red"}, "color: not an option for any format"),
    ],
)
def test_detect_rejects_invalid_option_and_lists_allowed_values(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        look(CSV, "a.csv", **given)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", r"Save the file as \.xlsx"),
        (zipped(("a.csv", b"x"), ("b.csv", b"y")), "contains 2 files"),
        (b"\x00\x01\x02\x03" * 10, "Cannot detect the format .* one of csv, json, ndjson, parquet, tsv, xlsx"),
    ],
)
def test_detect_rejects_unrecognized_file(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        look(data)


@pytest.mark.parametrize(("ending", "called"), [(".gz", "gzip"), (".zst", "zstd"), (".zip", "zip")])
def test_detect_rejects_binary_file_with_wrong_compression_suffix(ending: str, called: str) -> None:
    for data in (random.Random(7).randbytes(500), b"a,b\n\x02\x01,2\n"):
        with pytest.raises(InvalidInput, match=f'ends with "{ending}", but the file is not {called}-compressed$'):
            look(data, f"a.csv{ending}")
    assert look(CSV, f"a.csv{ending}")["compression"] == "none"
    assert look(gzip.compress(CSV), f"a.csv{ending}")["compression"] == "gzip"


def test_detect_reads_file_from_path(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_bytes(b"a\tb\n1\t2\n")
    assert detect_layout(path).delimiter == "\t"


def test_detect_time_is_bounded_for_large_files() -> None:
    data = b"id,name\n" + b"1,abcdefgh\n" * 5_000_000
    began = time.thread_time()
    look(data, "a.csv")
    look(b'"' + b"x" * 50_000_000, "a.csv")
    look(gzip.compress(b"0" * 100_000_000, 1), "a.csv")
    assert time.thread_time() - began < 5


def test_detect_works_on_truncated_compressed_file() -> None:
    data = gzip.compress(b"id;name\n" + b"".join(b"%d;x\n" % (n * 7919) for n in range(100_000)))
    assert look(data[: len(data) // 2])["delimiter"] == ";"


def test_detect_header_of_codes_above_an_invalid_first_row_has_one_row() -> None:
    text = "id,name\n" + "".join(f"{n if n % 10 else 'x'},n{n}\n" for n in range(100))
    found = look(text.encode())
    assert (found["header"], found.get("header_rows", 1)) == (True, 1)


@pytest.mark.parametrize(
    ("line", "header"),
    [("id,name,c10,c11,c12\n", True), ("id;address_1;address_22\n", True), ("7,Ann\n", False), ("AB-12,33\n", False)],
)
def test_detect_only_row_is_the_header_if_all_values_are_identifiers(line: str, header: bool) -> None:
    assert look(line.encode())["header"] is header


@pytest.mark.parametrize(
    ("text", "records"),
    [
        ('{"count": 2, "items": [{"id": 1}, {"id": 2}]}', "items"),
        ('{\n "items": [\n  {"id": 1}\n ]\n}\n', "items"),
        ('{"data": {"page": 1, "rows": [{"id": 1}, {"id": 2}]}}', "data.rows"),
        ('{"ids": [1, 2], "items": [{"text": "' + "x" * 70_000 + '"}, {"id": 2}]}\n', "items"),
    ],
    ids=["one line", "lines", "nested", "long"],
)
def test_json_object_with_one_list_of_objects_has_its_rows(text: str, records: str) -> None:
    found = look(text.encode(), "a.json")
    assert (found["format"], found["records"]) == ("json", records)


@pytest.mark.parametrize("text", ['{"a": [{"x": 1}], "b": [{"y": 1}]}', '{"id": 7, "lines": [{"x": 1}]}'])
def test_json_object_whose_rows_are_not_certain_is_rejected_with_option(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"one JSON object.*option \"records\""):
        look(text.encode(), "a.json")
    assert look(text.encode(), "a.ndjson")["format"] == "ndjson"


def test_json_object_without_list_is_rejected() -> None:
    with pytest.raises(InvalidInput, match="one object without a list of objects"):
        look(b'{\n "id": 1,\n "name": "Ann"\n}\n', "a.json")
