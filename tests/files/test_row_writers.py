"""Result files of every format, read back by third-party readers."""

import csv
import gzip
import io
import json
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pyarrow import parquet

from files.encoding import Pieces
from support.result_values import read_xlsx, result_columns
from tidemill.core.file_format import Compression, FileFormat, OutputFileSpec
from tidemill.core.result_grid import CellTypes
from tidemill.files.writers import open_row_writer, xlsx_sheets
from tidemill.files.writers.xlsx_sheets import format_column_letters, truncate_utf16

WIDE = "\uff1d\uff0b\uff0d\uff20"  # full-width = + - @


def written(
    format_: FileFormat, results: Sequence[dict[str, Any]], names: Sequence[str] = ("a", "b"), **options: Any
) -> bytes:
    output = Pieces()
    columns = result_columns(*names)
    types = CellTypes(columns)
    types.learn({"seq": n, "status": "done", "result": result} for n, result in enumerate(results))
    writer = open_row_writer(OutputFileSpec(format_, (), **options), output, columns, types=types)
    for start in range(0, len(results), 2):  # in several writes
        packet = [{"seq": start + n, "status": "done", "result": r} for n, r in enumerate(results[start : start + 2])]
        writer.write(packet)
    writer.close()
    return bytes(output)


def test_csv_writer_follows_rfc_4180() -> None:
    made = written(FileFormat.CSV, [{"a": 'x,"y"\r\n', "b": None}, {"a": "", "b": True}, {"a": 1.5, "b": -3}])
    assert made == (
        b"a,b,_row,_status,_error_code,_error,_attempts\r\n"
        b'"x,""y""\r\n",,1,done,,,0\r\n"",true,2,done,,,0\r\n1.5,-3,3,done,,,0\r\n'
    )


def test_csv_writer_distinguishes_empty_text_from_missing_value() -> None:
    made = written(FileFormat.CSV, [{"a": "", "b": 'with "quotes", and\nlines'}])
    assert made.splitlines()[1].startswith(b'"","with ""quotes"", and')
    (_, line) = csv.reader(io.StringIO(made.decode(), newline=""))
    assert line[:2] == ["", 'with "quotes", and\nlines']


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\tx", "\rx", "\nx", *(f"{mark}1" for mark in WIDE)])
def test_spreadsheet_safe_csv_escapes_only_formulas(text: str) -> None:
    values = [{"a": text, "b": -1}, {"a": "x" + text, "b": 1.5}]
    made = written(FileFormat.CSV, values, spreadsheet_safe=True).decode()
    (_, first, second) = csv.reader(io.StringIO(made, newline=""))
    assert (first[:2], second[:2]) == ([f"'{text}", "-1"], [f"x{text}", "1.5"])
    (_, plain, _) = csv.reader(io.StringIO(written(FileFormat.CSV, values).decode(), newline=""))
    assert plain[0] == text


def test_spreadsheet_safe_csv_and_xlsx_escape_header(tmp_path: Path) -> None:
    for format_ in (FileFormat.CSV, FileFormat.XLSX):
        made = written(format_, [], ["=cmd()"], spreadsheet_safe=True)
        (tmp_path / "file").write_bytes(made)
        header = made.decode().split(",")[0] if format_ is FileFormat.CSV else read_xlsx_cell(tmp_path / "file")
        assert header == "'=cmd()"


def read_xlsx_cell(path: Path) -> str:
    path.rename(path.with_suffix(".xlsx"))
    return str(read_xlsx(path.with_suffix(".xlsx"))[0][0][0])


def test_xlsx_text_is_never_formula_number_or_link(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, [{"a": "=1+1", "b": "007"}, {"a": "https://x.example", "b": "1.0"}]))
    sheet = zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml").decode()
    assert "<f>" not in sheet
    assert "hyperlink" not in sheet
    assert read_xlsx(path)[0][1][:2] == ["=1+1", "007"]


def test_xlsx_workbook_parts_are_complete_and_well_formed(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, [{"a": "<&>\x01\x0b\ufffe", "b": "]]>"}]))
    with zipfile.ZipFile(path) as book:
        assert book.testzip() is None
        parts = {name: ET.fromstring(book.read(name)) for name in book.namelist()}
    types = {each.attrib["PartName"] for each in parts["[Content_Types].xml"] if "PartName" in each.attrib}
    assert types == {"/xl/worksheets/sheet1.xml", "/xl/workbook.xml", "/xl/styles.xml"}
    for rels, folder in (("_rels/.rels", ""), ("xl/_rels/workbook.xml.rels", "xl/")):
        for relation in parts[rels]:
            assert folder + relation.attrib["Target"] in parts


def test_xlsx_row_limit_starts_new_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_sheets, "ROWS_PER_SHEET_MAX", 4)
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, [{"a": n} for n in range(7)], ["a"]))
    sheets = read_xlsx(path)
    assert [[row[0] for row in sheet] for sheet in sheets] == [["a", 0, 1, 2], ["a", 3, 4, 5], ["a", 6]]


def test_xlsx_size_limit_starts_new_sheet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx_sheets, "BYTES_PER_SHEET_MAX", 2_000)
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, [{"a": "x" * 900, "b": n} for n in range(8)]))
    sheets = read_xlsx(path)
    assert len(sheets) > 2
    assert [row[1] for sheet in sheets for row in sheet[1:]] == list(range(8))


def test_csv_and_xlsx_without_rows_contain_only_header(tmp_path: Path) -> None:
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, []))
    header = ["a", "b", "_row", "_status", "_error_code", "_error", "_attempts"]
    assert read_xlsx(path) == [[header]]
    assert written(FileFormat.CSV, []) == ",".join(header).encode() + b"\r\n"
    assert written(FileFormat.NDJSON, []) == b""
    assert json.loads(written(FileFormat.JSON, [])) == []


def test_json_writer_writes_one_array_of_all_packets() -> None:
    made = json.loads(written(FileFormat.JSON, [{"a": n, "b": {"nested": [n]}} for n in range(5)]))
    assert [(each["a"], each["b"], each["_row"]) for each in made] == [(n, {"nested": [n]}, n + 1) for n in range(5)]


def test_compressed_result_file_has_the_content_of_the_plain_file() -> None:
    plain = written(FileFormat.CSV, [{"a": n} for n in range(5)])
    assert gzip.decompress(written(FileFormat.CSV, [{"a": n} for n in range(5)], compression=Compression.GZIP)) == plain


def test_parquet_column_has_the_type_of_all_its_values(tmp_path: Path) -> None:
    values: dict[str, list[Any]] = {
        "whole": [1, None, -(2**53) + 1],
        "fraction": [1, 0.5, None],
        "flag": [True, False, None],
        "text": ["a", "", None],
        "mixed": [1, True, "007"],
        "large": [1, 2**70, 3],
        "nested": [{"a": [1]}, None, []],
        "nothing": [None, None, None],
    }
    path = tmp_path / "a.parquet"
    rows = [{name: column[n] for name, column in values.items()} for n in range(3)]
    path.write_bytes(written(FileFormat.PARQUET, rows, tuple(values)))
    table = parquet.read_table(path)
    types = {name: str(table.schema.field(name).type) for name in values}
    texts = dict.fromkeys(("text", "mixed", "large", "nested", "nothing"), "string")
    assert types == texts | {"whole": "int64", "fraction": "double", "flag": "bool"}
    found = {name: table.column(name).to_pylist() for name in values}
    assert found == values | {
        "mixed": ["1", "true", "007"],
        "large": ["1", str(2**70), "3"],
        "nested": ['{"a":[1]}', None, "[]"],
    }
    assert table.column("_row").to_pylist() == [1, 2, 3]


def test_xlsx_cell_is_truncated_between_characters() -> None:
    assert truncate_utf16("x" * 10, 10) == "x" * 10
    assert truncate_utf16("x" * 11, 10) == "x" * 10
    assert truncate_utf16("👩" * 6, 11) == "👩" * 5  # two units each; half a character is dropped
    text = "x" * 5
    assert truncate_utf16(text, 10) is text


def test_xlsx_column_letters_follow_spreadsheet_order() -> None:
    assert [format_column_letters(n) for n in (0, 25, 26, 51, 52, 701, 702, 16_383)] == [
        "A",
        "Z",
        "AA",
        "AZ",
        "BA",
        "ZZ",
        "AAA",
        "XFD",
    ]


def test_xlsx_keeps_every_storable_character(tmp_path: Path) -> None:
    """Return every storable character of the first two Unicode planes."""
    characters = [chr(n) for n in range(1, 0x3000) if not 0xD800 <= n <= 0xDFFF] + ["\ufffe", "\uffff", "\U0001f600"]
    lines = ["".join(characters[start : start + 200]) for start in range(0, len(characters), 200)]
    path = tmp_path / "a.xlsx"
    path.write_bytes(written(FileFormat.XLSX, [{"a": line} for line in lines], ["a"]))
    (sheet,) = read_xlsx(path)
    assert [row[0] for row in sheet[1:]] == lines
    assert not re.search(rb"[\x00-\x08\x0b-\x1f]", zipfile.ZipFile(path).read("xl/worksheets/sheet1.xml"))
