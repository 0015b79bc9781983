"""XLSX: damaged and hand-made workbooks give rows or a declared error, in bounded work and memory."""

import io
import json
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from files.encoding import Pieces
from fuzz.mutations import list_zip_members, mutated_zip, pack_zip
from fuzz.reading import assert_reads_consistently, consume, opened, run_or_reject
from fuzz.targets import fuzz
from support.counted_work import count_calls, measure_peak_bytes
from support.result_values import result_columns
from support.workbooks import cell, handmade, workbook
from tidemill.core.errors import InvalidInput
from tidemill.core.file_format import FileFormat, OutputFileSpec
from tidemill.files.formats.xlsx_reader import parse_column_letters
from tidemill.files.formats.xlsx_workbook import classify_number_format, format_serial_date, unescape_xlsx_text
from tidemill.files.layout_detection import detect_layout
from tidemill.files.writers import open_row_writer
from tidemill.files.writers.xlsx_sheets import escape_xlsx_text, format_column_letters

XLSX = {"format": "xlsx"}
STYLES = (
    '<numFmts><numFmt numFmtId="164" formatCode="yyyy-mm-dd"/><numFmt numFmtId="165" formatCode="[h]:mm"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="165"/><xf numFmtId="21"/><xf numFmtId="22"/></cellXfs>'
)
SHEET_ROWS = (
    f'<row r="1">{cell("A1", "id")}{cell("B1", "at")}</row>'
    '<row r="2"><c r="A2" t="s"><v>0</v></c><c r="B2" s="1"><v>45000.5</v></c></row>'
    '<row r="4"><c r="A4" t="b"><v>1</v></c><c r="B4" s="2"><v>1.5</v></c></row>'
    '<row><c><v>1e3</v></c><c t="str" s="3"><v>_x0041_</v></c></row>'
)
SAMPLES = (
    workbook([["id", "name"], [1, "Ada"], [None, 2.5], [True, "x" * 40]]),
    workbook([["id"], [1]], Sheet2=[["id"], [2]]),
    handmade(SHEET_ROWS, strings="<si><t>one</t></si><si><r><t>t</t></r><rPh><t>w</t></rPh></si>", styles=STYLES),
    handmade(SHEET_ROWS, strings="<si><t> _x000D_ </t></si>", properties='<workbookPr date1904="1"/>'),
)
FRAGMENTS = tuple(
    text.encode()
    for text in (
        *('<row r="3">', '<row r="1048577"/>', "</row>", '<c r="A1">', '<c r="XFD2"><v>1</v></c>', "<c><v>2</v></c>"),
        *('<c t="s"><v>1</v></c>', '<c t="s"><v>99</v></c>', f'<c t="s"><v>{"9" * 4_400}</v></c>', "<v>", "</v>"),
        *("<v>1e308</v>", "<v>-1</v>", "<v>nan</v>", "<v>60</v>", "<v>1_0</v>", '<c s="2"><v>1e308</v></c>'),
        *("<t>_xD800_</t>", "<t>_x0000_</t>", "<is><t>a</t></is>", "<rPh>", "<si><t>z</t></si>", ' t="inlineStr"'),
        *("<!DOCTYPE a [<!ENTITY b 'c'>]>", "&b;", "&#0;", "&#55296;", "<![CDATA[<v>]]>", "<!--", "-->", "<?x?>"),
        *('<?xml version="1.0" encoding="shift_jis"?>', '<?xml version="1.0" encoding="utf-16"?>', "<x:c/>"),
        *('<?xml version="1.0" encoding="nothing"?>', '<?xml version="1.0" encoding="cp1252"?>', "x" * 5_000),
        *(' r="1"', ' s="3"', ' s="-1"', 'Target="/"', 'Target="../../x"', 'r:id="rId9"', 'date1904="true"'),
        *('numFmtId="99999999999999999999"', 'formatCode="[hh]:ss"', 'state="hidden"', 'sheetId="0"', " " * 70_000),
    )
)
DAMAGED = mutated_zip(SAMPLES, fragments=FRAGMENTS)
SHEETS = st.sampled_from([None, 1, 2, "Sheet2", "one", "", "9" * 5_000, "²", -1, 10**20])


@fuzz(
    examples=80,
    data=DAMAGED,
    layout=st.fixed_dictionaries({}, optional={"header": st.booleans(), "sheet": SHEETS}),
    at=st.integers(0, 9),
)
def test_damaged_workbook_gives_rows_or_a_declared_error(data: bytes, layout: dict[str, Any], at: int) -> None:
    for row in assert_reads_consistently(data, XLSX | layout, [], at).rows:
        json.loads(row.input)


@fuzz(examples=60, data=st.lists(st.sampled_from(FRAGMENTS), max_size=8).map(b"".join), at=st.integers(0, 9))
def test_sheet_of_random_fragments_gives_rows_or_a_declared_error(data: bytes, at: int) -> None:
    members = dict(list_zip_members(SAMPLES[2]))
    sheet = "xl/worksheets/one.xml"
    members[sheet] = members[sheet].replace(b"</sheetData>", data + b"</sheetData>")
    assert_reads_consistently(pack_zip(list(members.items())), XLSX, [], at)


CELLS = (
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)
    | st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=6)
    | st.sampled_from(["_x0041_", "_x005F_", "_x005f_x0041_", " a ", "\r\n", "\x0b", "\ufffe", "]]>", "&amp;", "=1"])
)  # fmt: skip


@fuzz(rows=st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=5))
def test_workbook_reader_returns_cells_that_the_writer_wrote(rows: list[list[Any]]) -> None:
    output = Pieces()
    writer = open_row_writer(OutputFileSpec(FileFormat.XLSX, ()), output, result_columns("a", "b"))
    writer.write([{"seq": n, "status": "done", "result": {"a": a, "b": b}} for n, (a, b) in enumerate(rows)])
    writer.close()
    source = opened(bytes(output), XLSX)
    found = [json.loads(text) for text in source.read(100, 1 << 20).inputs]
    source.close()
    assert [[_without_empty(row["a"]), _without_empty(row["b"])] for row in found] == [
        [_without_empty(value) for value in row] for row in rows
    ]


def _without_empty(value: object) -> object:
    return None if value == "" else value


@fuzz(
    text=st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]))
    | st.from_regex("(_x[0-9A-Fa-f_]{1,6})+", fullmatch=True)
)
def test_workbook_text_escapes_are_reversible(text: str) -> None:
    escaped = escape_xlsx_text(text).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
    assert unescape_xlsx_text(escaped) == text


@fuzz(number=st.integers(0, 16_383))
def test_column_letters_are_reversible(number: int) -> None:
    assert parse_column_letters(format_column_letters(number)) == number


STYLE = st.sampled_from(["date", "datetime", "time", "duration"])


@fuzz(
    number=st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([60.0, 61.0, -0.0, 1e308]),
    style=STYLE,
    is_1904=st.booleans(),
)
def test_serial_date_of_any_number_is_a_text_or_none(number: float, style: Any, is_1904: bool) -> None:
    text = format_serial_date(number, style, is_1904=is_1904)
    assert text is None or len(text) < 400


@fuzz(code=st.text('ymdhsAM/:;[]\\"_*0#.,General ', max_size=30))
def test_any_number_format_is_classified(code: str) -> None:
    assert classify_number_format(code) in (None, "date", "datetime", "time", "duration")


@fuzz(
    examples=10,
    row=st.sampled_from(
        [
            '<row r="{n}"><c r="A{n}"><v>1</v></c></row>',
            "<row><c><v>1</v></c></row>",
            "<row/>",
            "<c/>",
            "<!--x-->",
            "<v>a</v>",
            "a",
        ]
    ),
)
def test_workbook_reader_work_grows_linearly_with_the_sheet(row: str) -> None:
    def work(rows: int) -> int:
        data = handmade(f'<row r="1">{cell("A1", "a")}</row>' + "".join(row.format(n=n) for n in range(2, rows)))
        return count_calls(lambda: consume(data, XLSX))

    assert work(4_000) <= 6 * work(1_000)


@fuzz(examples=4, strings=st.booleans(), size=st.sampled_from([1, 40]))
def test_workbook_reader_memory_does_not_grow_with_the_sheet(strings: bool, size: int) -> None:
    count = 20_000
    shared = "".join(f"<si><t>{'x' * size}{n}</t></si>" for n in range(count)) if strings else ""
    value = '<c t="s"><v>{n}</v></c>' if strings else "<c><v>{n}</v></c>"
    rows = "".join(f'<row r="{n + 1}">{value.format(n=n)}</row>' for n in range(count))
    data = handmade(f"{rows}", strings=shared)
    assert measure_peak_bytes(lambda: consume(data, XLSX | {"header": False})) < 6 << 20


@fuzz(data=DAMAGED)
def test_damaged_workbook_is_detected_or_rejected(data: bytes) -> None:
    with suppress(InvalidInput):
        detect_layout(io.BytesIO(data), name="a.xlsx")
    run_or_reject(lambda: detect_layout(io.BytesIO(data)), InvalidInput)
