"""Build files that are made to exhaust a reader. Each is small, and a service must reject it early."""

import io
import struct
import zipfile
from collections.abc import Callable, Mapping

DEEP_JSON_LEVELS = 200_000
WIDE_CSV_COLUMNS = 9_000  # fewer than the maximum, so that all columns are checked
WIDE_CSV_ROWS = 12
GIANT_TOKEN_BYTES = 3 << 20
SHARED_PART_SHEETS = 50
SHARED_PART_BYTES = 3 << 20
FALSE_ZIP_ENTRIES = 70_000
EQUAL_ROWS = 3_000_000

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def make_wide_csv(columns: int = WIDE_CSV_COLUMNS, rows: int = WIDE_CSV_ROWS) -> bytes:
    header = ",".join(f"c{n}" for n in range(columns))
    return "\n".join([header, *([",".join(["1"] * columns)] * rows), ""]).encode()


def make_deep_json(levels: int = DEEP_JSON_LEVELS) -> bytes:
    """Return an array that never closes."""
    return b"[" * levels


def make_zip_with_false_end_record(entries: int = FALSE_ZIP_ENTRIES) -> bytes:
    """Return a zip64 whose plain end record declares one entry."""
    name = b"x"
    head = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    directory = (head + name) * entries
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, entries, entries, len(directory), 0)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(directory), 1)
    return directory + end64 + locator + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, 47, 0, 0)


def make_parquet_of_equal_rows(rows: int = EQUAL_ROWS) -> bytes:
    """Return a few thousand bytes that decode to millions of rows."""
    import pyarrow as pa  # noqa: PLC0415  only this file needs it
    from pyarrow import parquet  # noqa: PLC0415

    file = io.BytesIO()
    parquet.write_table(pa.table({"n": pa.repeat(pa.scalar(1, pa.int64()), rows)}), file)
    return file.getvalue()


def make_workbook_with_giant_attribute(size: int = GIANT_TOKEN_BYTES) -> bytes:
    return _zip_workbook({"one.xml": f'<row r="1" spans="{"x" * size}"/>'}, ["one.xml"])


def make_workbook_with_shared_part(sheets: int = SHARED_PART_SHEETS, size: int = SHARED_PART_BYTES) -> bytes:
    """Return a workbook whose sheets all are in one large part."""
    return _zip_workbook({"shared.xml": " " * size}, ["shared.xml"] * sheets)


HOSTILE_FILES: Mapping[str, tuple[str, Callable[[], bytes]]] = {
    "wide_csv": ("wide.csv", make_wide_csv),
    "giant_attribute": ("giant.xlsx", make_workbook_with_giant_attribute),
    "shared_part": ("shared.xlsx", make_workbook_with_shared_part),
    "deep_json": ("deep.json", make_deep_json),
    "false_zip": ("false.zip", make_zip_with_false_end_record),
    "equal_rows": ("equal.parquet", make_parquet_of_equal_rows),
}
"""Name of the attack -> name of the file, and its builder."""


def _zip_workbook(parts: Mapping[str, str], sheets: list[str]) -> bytes:
    """Return a workbook with this sheet data in these parts; ``sheets`` names the part of each sheet."""
    numbered = list(enumerate(sheets, 1))
    listed = "".join(f'<sheet name="s{n}" sheetId="{n}" r:id="rId{n}"/>' for n, _ in numbered)
    links = "".join(f'<Relationship Id="rId{n}" Type="{_TYPES}/worksheet" Target="{part}"/>' for n, part in numbered)
    files = {
        "_rels/.rels": f'<Relationships><Relationship Id="rId1" Type="{_TYPES}/officeDocument" '
        'Target="xl/workbook.xml"/></Relationships>',
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_TYPES}"><sheets>{listed}</sheets></workbook>',
        "xl/_rels/workbook.xml.rels": f"<Relationships>{links}</Relationships>",
    }
    for part, data in parts.items():
        files[f"xl/{part}"] = f'<worksheet xmlns="{_MAIN}"><sheetData>{data}</sheetData></worksheet>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return file.getvalue()
