"""Damaged and unusual parts of zip archives and workbooks: each is a declared error with a plain message."""

import io
import zipfile

import pytest

from files.reading import opened, told
from files.test_compression import zipped
from support.workbooks import cell, handmade
from tidemill.core.errors import InvalidInput
from tidemill.files.layout_detection import detect_layout

XLSX = {"format": "xlsx"}
HEADER = f'<row r="1">{cell("A1", "id")}</row>'
ROWS = b"id\n" + b"".join(b"%d\n" % (n * 7_919) for n in range(2_000))


def damage(data: bytes) -> bytes:
    """Invert bytes in the middle of the only member of an archive."""
    return data[:400] + bytes(byte ^ 0xFF for byte in data[400:420]) + data[420:]


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_with_damaged_member_is_an_error_of_the_file(method: int) -> None:
    data = damage(zipped(("rows.csv", ROWS), method=method))
    _, error = told(data, {"format": "csv", "compression": "zip"})
    assert (error or "").startswith("The zip file is damaged: ")
    assert detect_layout(io.BytesIO(data)).compression == "zip"


def test_zip_whose_member_name_is_not_utf8_is_an_error_of_the_file() -> None:
    data = bytearray(zipped(("é.csv", ROWS)))
    data[data.index("é".encode())] = 0xFF  # in the header of the member; the directory stays valid
    _, error = told(bytes(data), {"format": "csv", "compression": "zip"})
    assert (error or "").startswith("The zip file is damaged")


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_workbook_with_damaged_member_is_an_error_of_the_file(method: int) -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(handmade(HEADER))) as source, zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr("_rels/.rels", source.read("_rels/.rels") + b" " * 3_000 + bytes(range(256)) * 20)
        for name in source.namelist()[1:]:
            archive.writestr(name, source.read(name))
    data = bytearray(file.getvalue())
    data[100:140] = bytes(byte ^ 0xFF for byte in data[100:140])
    with pytest.raises(InvalidInput, match="The workbook is damaged"):
        opened(bytes(data), XLSX)


@pytest.mark.parametrize("encoding", ["shift_jis", "nothing", "utf-7"])
def test_workbook_in_unsupported_encoding_is_an_error_of_the_file(encoding: str) -> None:
    data = handmade(HEADER, head=f'<?xml version="1.0" encoding="{encoding}"?>')
    with pytest.raises(InvalidInput, match="The workbook is damaged"):
        opened(data, XLSX)


def test_shared_string_number_of_many_digits_is_missing() -> None:
    data = handmade(HEADER + f'<row><c t="s"><v>{"9" * 5_000}</v></c></row>')
    assert told(data, XLSX) == ([], "The workbook is damaged: shared string -1 is missing")


def test_sheet_number_of_many_digits_is_unknown() -> None:
    with pytest.raises(InvalidInput, match='Unknown sheet "999') as refused:
        opened(handmade(HEADER), XLSX | {"sheet": "9" * 5_000})
    assert len(str(refused.value)) < 300


def test_duration_that_is_too_long_stays_a_number() -> None:
    styles = '<cellXfs><xf numFmtId="46"/></cellXfs>'
    data = handmade(HEADER + '<row><c s="0"><v>1e308</v></c></row>', styles=styles)
    assert told(data, XLSX) == ([{"id": 1e308}], None)
