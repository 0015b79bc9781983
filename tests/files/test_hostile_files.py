"""Files that are made to exhaust a reader: each is rejected early, with a message that names the limit."""

import cProfile
import io
import struct
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from files.reading import MB, opened, told
from support.workbooks import cell, handmade, workbook
from tidemill.core.errors import InvalidInput
from tidemill.files.compression import open_zip
from tidemill.files.formats import json_reader
from tidemill.files.formats.column_names import FILE_COLUMNS_MAX
from tidemill.files.formats.xlsx_workbook import Workbook
from tidemill.files.layout_detection import detect_layout

XLSX = {"format": "xlsx"}
ROWS = f'<row r="1">{cell("A1", "id")}</row><row r="2">{cell("A2", 7)}</row>'


@pytest.mark.parametrize("head", ["", "<!-- {} -->"], ids=["attribute", "comment"])
def test_workbook_with_giant_xml_token_is_rejected(head: str) -> None:
    giant = "x" * (3 * MB)
    data = handmade(ROWS, head=head.format(giant)) if head else handmade(f'<row r="1" spans="{giant}"/>{ROWS}')
    assert told(data, XLSX) == ([], "The workbook has an XML tag or comment larger than 1 MB")


def test_workbook_with_long_text_between_tags_is_read() -> None:
    assert told(handmade(" " * (3 * MB) + ROWS), XLSX) == ([{"id": 7}], None)


def with_sheets(parts: list[str], sheet: str) -> bytes:
    """Return a workbook whose further sheets, one per part, are in these parts, all with the same content."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook([["id"], [7]]))) as source,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in source.namelist():
            text = source.read(name).decode()
            if name == "xl/workbook.xml":
                more = "".join(
                    f'<sheet name="s{n}" sheetId="{n + 9}" r:id="x{n}" '
                    'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"/>'
                    for n in range(len(parts))
                )
                text = text.replace("</sheets>", f"{more}</sheets>")
            if name == "xl/_rels/workbook.xml.rels":
                links = (f'<Relationship Id="x{n}" Target="{part}" Type="w"/>' for n, part in enumerate(parts))
                text = text.replace("</Relationships>", f"{''.join(links)}</Relationships>")
            archive.writestr(name, text)
        for part in set(parts):
            archive.writestr(f"xl/{part}", sheet)
    return file.getvalue()


def test_workbook_part_of_several_sheets_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: Counter[str] = Counter()
    iter_chunks = Workbook.iter_part_chunks

    def count_reads(book: Workbook, path: str) -> Iterator[bytes]:
        reads[path] += 1
        return iter_chunks(book, path)

    monkeypatch.setattr(Workbook, "iter_part_chunks", count_reads)
    data = with_sheets(["shared.xml"] * 50, "<worksheet><sheetData/></worksheet>")
    assert told(data, XLSX) == ([{"id": 7}], None)
    assert reads["xl/shared.xml"] == 1


def test_workbook_decompression_limit_counts_all_sheets() -> None:
    sheet = f"<worksheet>{' ' * (3 * MB)}<sheetData/></worksheet>"
    data = with_sheets([f"part{n}.xml" for n in range(8)], sheet)
    assert told(data, XLSX) == ([], "The file decompresses to more than 200 times its size")


def test_json_array_that_never_closes_is_rejected_by_its_depth() -> None:
    rows, error = told(b"[" + b"[" * 200_000, {"format": "json"})
    assert (rows, error) == ([], "Invalid JSON at byte 1, line 1: value nested more than 10,000 levels deep")


def test_json_array_with_endless_element_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_reader, "SKIPPED_ELEMENT_MAX_BYTES", MB)
    rows, error = told(b"[[" + b"[]," * 600_000, {"format": "json"}, limit=100_000)
    assert rows == []
    assert error is not None
    assert error.endswith("value longer than 100000 bytes")


def zip_with_false_end_record(entries: int) -> bytes:
    """Return a zip64 whose plain end record declares one entry."""
    name = b"x"
    head = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    directory = (head + name) * entries
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    return directory + end64 + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, 0, 0)


def test_zip64_with_false_entry_count_is_rejected_before_its_directory_is_loaded() -> None:
    with pytest.raises(InvalidInput, match="has too many entries"):
        open_zip(io.BytesIO(zip_with_false_end_record(70_000)))
    with open_zip(io.BytesIO(zip_with_false_end_record(3))) as archive:
        assert len(archive.infolist()) == 3


def written(columns: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def test_parquet_with_millions_of_equal_rows_in_few_bytes_is_rejected() -> None:
    bomb = written({"n": pa.repeat(pa.scalar(1, pa.int64()), 3_000_000)})
    assert len(bomb) < 20_000
    with pytest.raises(InvalidInput, match="decompresses to more than 200 times its size"):
        opened(bomb, {"format": "parquet"})


@pytest.mark.parametrize("header", [True, False])
def test_file_with_too_many_columns_is_rejected(header: bool) -> None:
    line = ",".join(f"c{n}" for n in range(FILE_COLUMNS_MAX + 1)).encode()
    error = told(line + b"\n" + line + b"\n", {"format": "csv", "header": header})[1]
    assert error == "The file has 16,385 columns. At most 16,384 are allowed."


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_file_without_required_byte_order_mark_is_rejected(encoding: str) -> None:
    data = "id,name\n1,Ada\n".encode(f"{encoding}-le")
    message = f'The file has no byte order mark, which encoding "{encoding}" requires.'
    with pytest.raises(InvalidInput, match=message):
        detect_layout(io.BytesIO(data), name="a.csv", options={"encoding": encoding})
    error = told(data, {"format": "csv", "encoding": encoding})[1]
    assert error == f"{message} Set encoding to {encoding}-le or {encoding}-be."
    layout = detect_layout(io.BytesIO(data), name="a.csv", options={"encoding": f"{encoding}-le"})
    assert told(data, layout.to_json())[0] == [{"id": "1", "name": "Ada"}]


@pytest.mark.parametrize("cell", ["a", "alpha beta", '"a, b"', "A1"])
def test_detection_effort_does_not_grow_with_number_of_texts(cell: str) -> None:
    row = ",".join([cell] * 12)
    data = "\n".join([",".join(f"name {at}" for at in range(12)), *[row] * 5000]).encode()
    profiler = cProfile.Profile()
    profiler.runcall(detect_layout, io.BytesIO(data), name="texts.csv")
    assert sum(entry.callcount for entry in profiler.getstats()) < 300_000
