"""XLSX: rows of a sheet as objects, and limits against malicious workbooks."""

import datetime as dt
import io
import tracemalloc
import zipfile
from typing import Any

import openpyxl
import pytest

from files.reading import opened, told, walk
from support.workbooks import cell, handmade, workbook
from tidemill.core.errors import InvalidInput
from tidemill.files.formats.xlsx_workbook import classify_number_format, format_serial_date

XLSX: dict[str, Any] = {"format": "xlsx"}
HEADER = f'<row r="1">{cell("A1", "id")}{cell("B1", "name")}</row>'


def test_xlsx_cells_keep_their_types() -> None:
    moment = dt.datetime(2024, 2, 29, 13, 5, 1)  # noqa: DTZ001  spreadsheets have no time zones
    rows: list[list[Any]] = [
        ["a", "b", "c", "d", "e", "f", "g"],
        [1, 2.5, "x & <y>", True, dt.date(2024, 2, 29), moment, None],
    ]
    expected = {"a": 1, "b": 2.5, "c": "x & <y>", "d": True, "e": "2024-02-29", "f": "2024-02-29T13:05:01", "g": None}
    assert told(workbook(rows), XLSX) == ([expected], None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.0", 1), ("1E3", 1000), ("-7", -7), ("0.1", 0.1), ("1e999", "1e999"), ("x", "x"), ("1E20", 1e20)],
)
def test_xlsx_integral_numbers_stay_integers(text: str, value: object) -> None:
    data = handmade(f'<row r="1">{cell("A1", "id")}</row><row r="2"><c r="A2"><v>{text}</v></c></row>')
    assert told(data, XLSX) == ([{"id": value}], None)


@pytest.mark.parametrize(
    ("number", "shown", "is_1904", "date"),
    [
        (1, "date", False, "1900-01-01"),
        (59, "date", False, "1900-02-28"),
        (60, "date", False, None),
        (61, "date", False, "1900-03-01"),
        (45_351, "date", False, "2024-02-29"),
        (45_351.5, "date", False, "2024-02-29T12:00:00"),
        (0, "date", True, "1904-01-01"),
        (43_889, "date", True, "2024-02-29"),
        (0.75, "time", False, "18:00:00"),
        (1.25, "duration", False, "30:00:00"),
        (-1, "date", False, None),
        (1e12, "date", False, None),
    ],
)
def test_xlsx_serial_dates_use_1900_or_1904_epoch(number: float, shown: Any, is_1904: bool, date: str | None) -> None:
    assert format_serial_date(number, shown, is_1904=is_1904) == date


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("yyyy-mm-dd", "date"),
        ("d.m.yy h:mm", "datetime"),
        ("h:mm AM/PM", "time"),
        ("[h]:mm:ss", "duration"),
        ("[$-409]mmmm d, yyyy;@", "date"),
        ("General", None),
        ("0.00", None),
        ('0 "days"', None),
        ("[Red]#,##0", None),
        ("\\d0", None),
        ("mmm", "date"),
    ],
)
def test_xlsx_number_format_is_classified_as_date_time_or_number(code: str, shown: str | None) -> None:
    assert classify_number_format(code) == shown


def test_xlsx_1904_epoch_is_read_from_workbook() -> None:
    book = openpyxl.Workbook()
    book.epoch = openpyxl.utils.datetime.CALENDAR_MAC_1904
    book.active.append(["day"])
    book.active.append([dt.date(2024, 2, 29)])
    file = io.BytesIO()
    book.save(file)
    assert told(file.getvalue(), XLSX) == ([{"day": "2024-02-29"}], None)


def test_xlsx_sheet_is_chosen_by_name_or_number() -> None:
    data = workbook([["id"], [1]], people=[["id"], [2]])
    for sheet, value in ((1, 1), ("people", 2), (2, 2), ("2", 2), ("Sheet", 1)):
        assert told(data, XLSX | {"sheet": sheet}) == ([{"id": value}], None)
    with pytest.raises(InvalidInput, match=r'Unknown sheet "nope"\. The workbook has: Sheet, people'):
        opened(data, XLSX | {"sheet": "nope"})


def test_xlsx_with_rows_in_several_sheets_requires_sheet_option() -> None:
    filled: list[list[Any]] = [["id"], [2]]
    for other in ("people", "Sheet 3"):
        data = workbook([["id"], [1]], **{other: filled})
        with pytest.raises(
            InvalidInput, match=f"rows in several sheets: Sheet, {other}. Select one with the sheet option"
        ):
            opened(data, XLSX)
    unlike: list[list[Any]] = [["name"], ["x"]]
    data = workbook([["id"], [1]], **{"Sheet 2": unlike})
    with pytest.raises(InvalidInput, match="rows in several sheets: Sheet, Sheet 2"):
        opened(data, XLSX)
    assert told(workbook([["id"], [1]], empty=[[]]), XLSX) == ([{"id": 1}], None)


def test_xlsx_hidden_sheet_is_ignored() -> None:
    book = openpyxl.load_workbook(io.BytesIO(workbook([["id"], [1]], notes=[["x"], ["y"]])))
    book["notes"].sheet_state = "hidden"
    file = io.BytesIO()
    book.save(file)
    assert told(file.getvalue(), XLSX) == ([{"id": 1}], None)


def test_xlsx_continuation_sheets_are_one_table_and_resume_at_any_row() -> None:
    further: dict[str, list[list[Any]]] = {"Sheet 2": [["id"], [3]], "Sheet 3": [["id"], [4], [5]]}
    data = workbook([["id"], [1], [2]], **further)
    found = list(walk(opened(data, XLSX)))
    assert [(one.value["id"], one.line) for one in found] == [(1, 2), (2, 3), (3, 5), (4, 7), (5, 8)]
    for at, one in enumerate(found):
        assert [rest.value for rest in walk(opened(data, XLSX, one.checkpoint))] == [
            rest.value for rest in found[at + 1 :]
        ]
    assert told(data, XLSX | {"sheet": "Sheet 2"}) == ([{"id": 3}], None)


def test_xlsx_empty_rows_are_skipped_and_sheet_row_numbers_kept() -> None:
    data = workbook([["id", "name"], [1, "a"], [], [None, None], [2, "b"]])
    source = opened(data, XLSX)
    assert (source.columns, source.first_line) == (["id", "name"], 2)
    assert [(read.value["id"], read.line) for read in walk(source, 10)] == [(1, 2), (2, 5)]


def test_xlsx_without_header_keeps_first_row() -> None:
    assert told(workbook([[1, "a"], [2, "b"]]), XLSX | {"header": False}) == (
        [{"column_1": 1, "column_2": "a"}, {"column_1": 2, "column_2": "b"}],
        None,
    )


def test_xlsx_reading_resumes_from_any_checkpoint() -> None:
    data = workbook([["id"], *([n] for n in range(50))])
    records = list(walk(opened(data, XLSX)))
    for n, record in enumerate(records, 1):
        assert list(walk(opened(data, XLSX, record.checkpoint))) == records[n:]


def test_xlsx_rich_shared_strings_become_plain_text() -> None:
    strings = "<si><t>id</t></si><si><r><t>a </t></r><r><t>b</t></r><rPh><t>loud</t></rPh></si><si><t/></si>"
    rows = '<row><c t="s"><v>0</v></c></row><row><c t="s"><v>1</v></c></row><row><c t="s"><v>2</v></c></row>'
    assert told(handmade(rows, strings=strings), XLSX) == ([{"id": "a b"}, {"id": ""}], None)


def test_xlsx_namespace_prefixed_elements_are_read() -> None:
    plain = io.BytesIO(handmade(HEADER + f'<row r="2">{cell("A2", 7)}</row>'))
    prefixed = io.BytesIO()
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(prefixed, "w") as new:
        for name in old.namelist():
            text = old.read(name).decode()
            if name.endswith("one.xml"):
                text = (
                    text.replace("</", "\x00").replace("<", "<x:").replace("\x00", "</x:").replace("xmlns=", "xmlns:x=")
                )
            new.writestr(name, text)
    assert told(prefixed.getvalue(), XLSX) == ([{"id": 7, "name": None}], None)


def test_xlsx_formula_cells_return_cached_value() -> None:
    data = handmade(
        HEADER + '<row r="2"><c r="A2"><f>1+1</f><v>2</v></c><c r="B2" t="str"><f>"x"</f><v>x</v></c></row>'
    )
    assert told(data, XLSX) == ([{"id": 2, "name": "x"}], None)


def test_xlsx_cell_beyond_header_fails_its_row() -> None:
    data = workbook([["id", "name"], [1, "a", "more"], [2, "b"]])
    assert told(data, XLSX) == (
        ["Row has a cell in column C, but the header ends at column B", {"id": 2, "name": "b"}],
        None,
    )


def test_xlsx_sparse_sheet_uses_bounded_memory() -> None:
    corner = '<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
    data = handmade(HEADER + f'<row r="2">{cell("A2", 1)}</row>' + corner)
    assert len(data) < 2_500
    tracemalloc.start()
    try:
        found, error = told(data, XLSX)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [{"id": 1, "name": None}, "Row has a cell in column XFD, but the header ends at column B"]
    assert error is None
    assert peak < 4 << 20


@pytest.mark.parametrize(("rows", "cells"), [(1, 16_000), (2_000, 1)])
def test_xlsx_shared_long_text_is_not_copied_per_cell(rows: int, cells: int) -> None:
    text = "x" * 1_000_000
    row = '<row><c t="s"><v>1</v></c>' + '<c t="s"><v>1</v></c>' * (cells - 1) + "</row>"
    header = '<row><c t="s"><v>0</v></c></row>'
    data = handmade(header + row * rows, strings=f"<si><t>id</t></si><si><t>{text}</t></si>")
    assert len(data) < 10_000
    tracemalloc.start()
    try:
        source = opened(data, XLSX)
        blocks = [source.read(3, 1 << 20) for _ in range(min(rows, 5))]
        source.close()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 30 << 20
    reasons = [defect["reason"] for block in blocks for defect in block.defects.values()]
    assert reasons == (["Row is longer than 1048576 bytes"] if cells > 1 else [])


@pytest.mark.parametrize(
    "row",
    [
        '<row r="1048577"><c r="A1048577"><v>1</v></c></row>',
        '<row r="2"><c r="XFE2"><v>1</v></c></row>',
        '<row r="2"><c r="ZZZZ2"><v>1</v></c></row>',
        '<row r="2"><c r="A99999999999"><v>1</v></c></row>',
        '<row r="0"><c r="A0"><v>1</v></c></row>',
        '<row r="x"/>',
        '<row r="2"><c r="B2"><v>1</v></c><c r="A2"><v>1</v></c></row>',
    ],
)
def test_xlsx_invalid_cell_reference_is_rejected(row: str) -> None:
    found, error = told(handmade(HEADER + row), XLSX)
    assert found == []
    assert "A sheet ends at XFD1048576" in (error or "")


BOMB = (
    '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">'
    '<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>'
)


@pytest.mark.parametrize("head", [BOMB, '<!DOCTYPE x SYSTEM "file:///etc/passwd">'])
def test_xlsx_document_type_declaration_is_rejected(head: str) -> None:
    data = handmade(HEADER + '<row r="2"><c r="A2" t="str"><v>&c;</v></c></row>', head=head)
    with pytest.raises(InvalidInput, match="XML document type declaration"):
        opened(data, XLSX)


def test_xlsx_compression_bomb_is_rejected() -> None:
    filler = "<row><c/></row>" * 800_000
    found, error = told(handmade(HEADER + filler), XLSX)
    assert found == []
    assert "decompresses to more than 200 times its size" in (error or "")


def test_xlsx_oversized_cell_is_rejected() -> None:
    data = handmade(HEADER + f'<row r="2">{cell("A2", "x" * 100_000)}</row>')
    found, error = told(data, XLSX, limit=50_000)
    assert found == []
    assert "A cell in row 2 is longer than 50000 characters" in (error or "")


def zipped(**parts: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "The file is empty. An XLSX workbook is required."),
        (b"PK\x03\x04 rubbish", "Not a zip file"),
        (b"id,name\n1,a\n", "Not an XLSX workbook. If the file contains text, set the format to csv."),
        (zipped(a="x"), "Not an XLSX workbook"),
        (workbook([]), "The sheet is empty"),
        (handmade("<row><c></row>"), "The workbook is damaged"),
        (handmade('<row><c t="s"><v>9</v></c></row>'), "shared string 9 is missing"),
    ],
)
def test_xlsx_reader_rejects_invalid_workbooks(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        opened(data, XLSX)


def test_xlsx_columns_without_a_name_or_with_a_repeated_name_get_derived_names() -> None:
    source = opened(workbook([["id", None, "id"], [1, 2, 3]]), XLSX)
    assert source.columns == ["id", "column_2", "id_2"]
    source.close()


@pytest.mark.parametrize("title", [[["Report of May"], []], [["Report of May"], ["by Ann"]], [["", "Report"]]])
def test_xlsx_header_below_a_title_is_detected_and_reported(title: list[list[Any]]) -> None:
    table: list[list[Any]] = [["id", "name", "paid"], [1, "Ann", 2.5], [2, "Bob", 3.5]]
    source = opened(workbook([*title, *table]), XLSX)
    assert source.columns == table[0]
    assert source.layout.skip_lines == len(title)
    found = list(walk(source, 10))
    assert [(list(one.value.values()), one.line) for one in found] == [
        (row, len(title) + n) for n, row in enumerate(table[1:], 2)
    ]
    again = list(walk(opened(workbook([*title, *table]), XLSX, {"sheet_row": len(title) + 2, "row": 1}), 10))
    assert [one.input for one in again] == [found[1].input]


def test_xlsx_sheet_without_a_header_numbers_its_columns() -> None:
    source = opened(workbook([[1, "Ann", 2.5], [2, "Bob", 3.5], [3, "Cid", 4.5]]), XLSX)
    assert source.columns == ["column_1", "column_2", "column_3"]
    assert len(list(walk(source, 10))) == 3


def test_xlsx_header_of_two_rows_with_merged_cells_is_joined() -> None:
    rows: list[list[Any]] = [
        [None, "Sales", None, "Costs", None],
        ["region", "may", "june", "may", "june"],
        ["north", 1, 2, 3, 4],
        ["south", 5, 6, 7, 8],
        ["west", 9, 1, 2, 3],
    ]
    source = opened(workbook(rows), XLSX)
    assert source.columns == ["region", "Sales may", "Sales june", "Costs may", "Costs june"]
    assert [list(one.value.values()) for one in walk(source, 10)] == rows[2:]


def test_xlsx_damage_is_reported_after_good_rows() -> None:
    rows = "".join(f'<row r="{n}">{cell(f"A{n}", n)}</row>' for n in range(2, 5_000))
    found, error = told(handmade(HEADER + rows + "<broken"), XLSX, rows=700)
    assert len(found) > 4_000
    assert "The workbook is damaged" in (error or "")
