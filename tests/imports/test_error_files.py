"""Error files: the layout of the imported file, all errors of a row, and formulas, over HTTP."""

import codecs
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from support import assert_sound, rows
from support.import_requests import CSV_TYPE, Shop, open_shop
from tidemill import Mill
from tidemill.core.file_format import FileLayout
from tidemill.core.principal import Role
from tidemill.files.writers.copy_encoders import format_csv_line
from tidemill.imports.column_mapping import ERROR_FILE_COLUMNS
from tidemill.imports.failed_rows import escape_cell_if_formula, make_csv_style
from tidemill.imports.fixed_rows import FixedCellMerger

BINARY = {"content-type": "application/octet-stream"}
HEADER = ["E-Mail", "name", "age"]
GUARDED = ['=HYPERLINK("x")', "+49 170 1", "-x", "@sum", "'=x", "''+1"]


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


async def download(shop: Shop, job_id: str, name: str) -> Any:
    answer = await shop.ada.get(f"/v1/imports/{job_id}/{name}")
    assert answer.status_code == 200, answer.text
    return answer


def encode(lines: list[list[str]], encoding: str, delimiter: str, line_end: str) -> bytes:
    text = "".join(format_csv_line(line, delimiter=delimiter, line_end=line_end) for line in lines)
    return text.encode(encoding)


@pytest.mark.parametrize(
    ("encoding", "delimiter", "line_end", "start", "charset"),
    [
        ("utf-8", ",", "\n", b"E-Mail", "utf-8"),
        ("utf-8-sig", ";", "\r\n", codecs.BOM_UTF8, "utf-8"),
        ("cp1252", ";", "\r\n", b"E-Mail", "windows-1252"),
        ("utf-16", "\t", "\r\n", codecs.BOM_UTF16_LE, "utf-16"),
        ("cp1252", "|", "\r", b"E-Mail", "windows-1252"),
    ],
)
async def test_errors_csv_has_layout_of_imported_file_and_is_accepted_as_fix(
    shop: Shop, encoding: str, delimiter: str, line_end: str, start: bytes, charset: str
) -> None:
    lines = [HEADER, ["ada@x.org", "Ada", "36"], ["bob", f'Jürgen "{delimiter}" Größe', "old"], ["cy@x.org", "", "7"]]
    done = await shop.imported(encode(lines, encoding, delimiter, line_end), mode="upsert", headers=BINARY)
    assert done["rows_by_error"] == {"email.pattern": 1, "age.type": 1, "name.required": 1}
    answer = await download(shop, done["job_id"], "errors.csv")
    assert answer.content.startswith(start)
    assert answer.headers["content-type"] == f"text/csv; charset={charset}"
    assert "x-tidemill-note" not in answer.headers
    text = answer.content.decode(encoding)
    assert len(text.split(line_end)) == 4
    assert "".join(mark for mark in text if mark in "\r\n") == line_end * 3
    header, bob, cy = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    assert header == [*HEADER, *ERROR_FILE_COLUMNS]
    assert bob[:4] == ["bob", f'Jürgen "{delimiter}" Größe', "old", "2"]
    assert bob[4].startswith("E-Mail: must be an e-mail address; age: ")
    assert bob[5] == "email.pattern; age.type"
    assert (cy[:4], cy[5]) == (["cy@x.org", "", "7", "3"], "name.required")

    fixed = (
        text.replace("bob", "bob@x.org").replace("old", "41").replace(f"cy@x.org{delimiter}", f"cy@x.org{delimiter}Cy")
    )
    fixed = fixed.replace('Cy""', "Cy")
    content = start.removeprefix(b"E-Mail") + fixed.removeprefix("\ufeff").encode(
        encoding.replace("utf-16", "utf-16-le")
    )
    content = content if encoding != "utf-8-sig" else fixed.encode("utf-8-sig")
    sent = await shop.ada.post(f"/v1/imports/{done['job_id']}/fixes", content=content, headers=BINARY)
    assert sent.status_code == 200, sent.text
    mended = await shop.worked(done["job_id"])
    assert (mended["status"], mended["rows_by_error"]) == ("completed", {})
    assert (await shop.people())[1:] == [("bob@x.org", f'Jürgen "{delimiter}" Größe', 41), ("cy@x.org", "Cy", 7)]

    again = await shop.imported(content, mode="upsert", headers=BINARY)
    assert (again["status"], again["total_records"], again["effects"]["unchanged"]) == ("completed", 2, 2)
    await assert_sound(shop.api.db)


async def test_errors_csv_is_utf8_with_note_when_encoding_lacks_character(shop: Shop) -> None:
    content = "email,name,age\nbob,Jürgen,old\n".encode("cp1252")
    done = await shop.imported(content, encoding="cp1252")
    fix = '{"_row": 1, "name": "Łukasz"}\n'.encode()
    await shop.ada.post(f"/v1/imports/{done['job_id']}/fixes?format=ndjson", content=fix, headers=BINARY)
    await shop.worked(done["job_id"])
    answer = await download(shop, done["job_id"], "errors.csv")
    assert answer.content.startswith(codecs.BOM_UTF8 + b"email,name,age,_row")
    assert answer.headers["x-tidemill-note"] == (
        "The file is UTF-8 with a byte order mark, because its rows cannot be written as cp1252"
    )
    assert "Łukasz" in answer.content.decode()


async def test_rows_by_error_counts_every_error_and_lists_as_many_rows(shop: Shop) -> None:
    content = (
        b"email,name,age\nx,A,1\nx,B,old\nx,,old\nbob@x.org,,2\nada@x.org,Ada,-1\nada@x.org,Eve,old\nok@x.org,Ok,1\n"
    )
    done = await shop.imported(content)
    job_id = done["job_id"]
    assert done["error_records"] == sum(done["errors"].values()) == 6
    assert sum(done["rows_by_error"].values()) > 6
    assert done["rows_by_error"]["age.type"] == 3
    assert done["errors"].get("age.type", 0) < 3
    for code, count in done["rows_by_error"].items():
        found = (await shop.ada.get(f"/v1/imports/{job_id}/errors", params={"error_codes": code})).json()["rows"]
        assert len(found) == count
        assert all(code in {error["code"] for error in row["errors"]} for row in found)
    fix = b'{"_row": 3, "name": "C", "age": 3}\n'
    await shop.ada.post(f"/v1/imports/{job_id}/fixes?format=ndjson", content=fix, headers=BINARY)
    again = await shop.worked(job_id)
    assert again["rows_by_error"]["age.type"] == 2
    assert again["rows_by_error"]["name.required"] == done["rows_by_error"]["name.required"] - 1
    await assert_sound(shop.api.db)


async def test_errors_of_several_fields_are_listed_by_their_code(shop: Shop) -> None:
    await rows(shop.api.db, "CREATE TABLE shop.pair (a int, b int, c int, UNIQUE (a, b))")
    root = await shop.api.user("root", Role.ADMIN)
    answer = await shop.post(b"A,B,c\n1,2,3\n1,2,x\n", root, resource="shop.pair")
    assert answer.status_code == 202, answer.text
    await shop.work()
    job_id = answer.json()["job_id"]
    done = (await root.get(f"/v1/imports/{job_id}")).json()
    assert done["rows_by_error"] == {"a, b.duplicate": 1, "c.type": 1}
    codes = {"error_codes": ["a, b.duplicate", ""]}
    assert len((await root.get(f"/v1/imports/{job_id}/errors", params=codes)).json()["rows"]) == 1
    text = (await root.get(f"/v1/imports/{job_id}/errors.csv")).text
    assert "A, B: row 1 has the same" in text


async def test_workbook_and_ndjson_have_all_errors_with_their_columns(shop: Shop) -> None:
    book = openpyxl.Workbook()
    for line in (HEADER, ["bob", "=1+1", -5], ["cy", None, "old"], ["di@x.org", "Di", 3]):
        book.active.append(line)
    book.active["B2"].data_type = "s"
    file = io.BytesIO()
    book.save(file)
    done = await shop.imported(file.getvalue(), headers=BINARY)
    job_id = done["job_id"]
    answer = await download(shop, job_id, "errors.xlsx")
    assert answer.headers["content-disposition"].endswith('-errors.xlsx"')
    header, bob, cy = openpyxl.load_workbook(io.BytesIO(answer.content)).active.iter_rows(values_only=True)
    assert header == (*HEADER, *ERROR_FILE_COLUMNS)
    assert bob[:4] == ("bob", "'=1+1", -5, 1)
    assert bob[5] == "email.pattern; age.too_small"
    assert cy[5] == "email.pattern; name.required; age.type"
    assert cy[4].count("; ") == 2
    lines = [json.loads(line) for line in (await download(shop, job_id, "errors.ndjson")).text.splitlines()]
    assert [(one["column"], one["field"]) for one in lines[1]["_errors"]] == [
        ("E-Mail", "email"),
        ("name", "name"),
        ("age", "age"),
    ]
    assert lines[1]["_error_codes"] == ["email.pattern", "name.required", "age.type"]

    fixed = openpyxl.load_workbook(io.BytesIO(answer.content))
    for cell, value in {"A2": "bob@x.org", "C2": 5, "A3": "cy@x.org", "B3": "Cy", "C3": 7}.items():
        fixed.active[cell] = value
    file = io.BytesIO()
    fixed.save(file)
    sent = await shop.ada.post(f"/v1/imports/{job_id}/fixes", content=file.getvalue(), headers=BINARY)
    assert sent.status_code == 200, sent.text
    assert (await shop.worked(job_id))["status"] == "completed"
    assert (await shop.people())[0] == ("bob@x.org", "=1+1", 5)
    again = await shop.imported(file.getvalue(), mode="upsert", headers=BINARY)
    assert (again["status"], again["effects"]["unchanged"]) == ("completed", 2)


async def test_formulas_in_errors_csv_are_guarded_and_survive_fix_and_new_import(shop: Shop) -> None:
    lines = [["email", "name", "age"], *([f"n{at}", name, "-3"] for at, name in enumerate(GUARDED))]
    done = await shop.imported(encode(lines, "utf-8", ",", "\n"))
    answer = await download(shop, done["job_id"], "errors.csv")
    found = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["name"] for row in found] == [f"'{name}" for name in GUARDED]
    assert {row["age"] for row in found} == {"-3"}
    fixed = answer.text.replace(",-3,", ",3,")
    fixed = "\n".join(line.replace(f"n{at}", f"n{at}@x.org", 1) for at, line in enumerate(fixed.splitlines(), -1))
    sent = await shop.ada.post(f"/v1/imports/{done['job_id']}/fixes", content=fixed.encode(), headers=CSV_TYPE)
    assert sent.status_code == 200, sent.text
    assert (await shop.worked(done["job_id"]))["status"] == "completed"
    assert [name for _, name, _ in await shop.people()] == GUARDED
    again = await shop.imported(fixed.encode(), mode="upsert")
    assert (again["status"], again["effects"]["unchanged"]) == ("completed", len(GUARDED))


@pytest.mark.parametrize(
    ("value", "shown"),
    [("-5", "-5"), ("+4.5", "+4.5"), ("-1e9", "-1e9"), ("-", "'-"), ("=1", "'=1"), ("\tx", "'\tx"), ("'-5", "''-5")],
)
def test_guard_keeps_numbers_and_escapes_other_formulas(value: str, shown: str) -> None:
    assert escape_cell_if_formula(value) == shown
    assert escape_cell_if_formula(shown, is_escaped=True) in (shown, escape_cell_if_formula(value))


@pytest.mark.parametrize(
    ("held", "cell", "stored"),
    [
        ("=1+1", "'=1+1", "=1+1"),
        ("=1+1", "=1+1", "=1+1"),
        ("=1+1", "'=2+2", "=2+2"),
        ("=1+1", "two", "two"),
        ("two", "'=2", "'=2"),
        ("x" * 40_000, "x" * 32_767, "x" * 40_000),
    ],
)
def test_fixed_cell_loses_only_the_apostrophe_of_the_error_file(held: str, cell: str, stored: str) -> None:
    assert FixedCellMerger(None).merge_row({"a": held}, {"a": cell}) == {"a": stored}


def test_csv_style_without_quotes_keeps_messages_in_one_field() -> None:
    style = make_csv_style(FileLayout(format="csv", delimiter=";", quote="", encoding="utf-8", line_end="\n"))
    assert style.encode_line(['5" pipe', ""], [7, "a: b; c\nd", "e"]) == b'5" pipe;;7;a: b  c d;e\n'


def test_csv_style_of_other_formats_is_comma_separated_utf8() -> None:
    style = make_csv_style(FileLayout(format="parquet"))
    assert (style.encoding, style.delimiter, style.line_end, style.byte_order_mark) == ("utf-8", ",", "\r\n", b"")
