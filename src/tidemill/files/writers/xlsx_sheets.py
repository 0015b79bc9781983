"""Writes the parts of a workbook as a stream, without a temporary file."""

import re
import zipfile
from collections.abc import Iterable
from typing import IO, Literal

from tidemill.files.writers.byte_output import ByteOutput

_RELATIONSHIPS_NS = "http://schemas.openxmlformats.org/package/2006/relationships"
_RELATIONSHIP_TYPES_NS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_SPREADSHEET_NS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_CONTENT_TYPE_PREFIX = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_XML_DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

# The first row is frozen.
SHEET_XML_HEAD = (
    f'{_XML_DECLARATION}<worksheet xmlns="{_SPREADSHEET_NS}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
).encode()
SHEET_XML_TAIL = b"</sheetData></worksheet>"
_STYLES_XML = (
    f'<styleSheet xmlns="{_SPREADSHEET_NS}"><numFmts count="3"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/>'
    '<numFmt numFmtId="165" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss"/>'
    '<numFmt numFmtId="166" formatCode="yyyy\\-mm\\-dd\\ hh:mm:ss.000"/></numFmts>'
    '<fonts count="2"><font><sz val="11"/><name val="Calibri"/></font>'
    '<font><b/><sz val="11"/><name val="Calibri"/></font></fonts>'
    '<fills count="2"><fill><patternFill patternType="none"/></fill>'
    '<fill><patternFill patternType="gray125"/></fill></fills>'
    '<borders count="1"><border><left/><right/><top/><bottom/><diagonal/></border></borders>'
    '<cellStyleXfs count="1"><xf numFmtId="0" fontId="0" fillId="0" borderId="0"/></cellStyleXfs>'
    '<cellXfs count="5"><xf numFmtId="0" fontId="0" fillId="0" borderId="0" xfId="0"/>'
    '<xf numFmtId="0" fontId="1" fillId="0" borderId="0" xfId="0" applyFont="1"/>'
    + "".join(
        f'<xf numFmtId="{number}" fontId="0" fillId="0" borderId="0" xfId="0" applyNumberFormat="1"/>'
        for number in (164, 165, 166)
    )
    + "</cellXfs>"
    '<cellStyles count="1"><cellStyle name="Normal" xfId="0" builtinId="0"/></cellStyles></styleSheet>'
)

# Characters that XML cannot contain are written as _xHHHH_. So are carriage returns, which XML parsers convert to line
# feeds, and text that looks like such an escape.
_XML_SPECIAL = re.compile("[&<>\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
_PLAIN_TEXT_MAX_CHARS = 16_000  # text of this length always fits into a cell
_DATE_STYLE_IDS = {"date": 2, "seconds": 3, "milliseconds": 4}  # indexes in cellXfs
_BOOLEAN_CELL_XML = {flag: f' t="b"><v>{flag:d}</v></c>' for flag in (False, True)}
EMPTY_CELL_XML = "/>"  # a cell without a value
ROW_NUMBER_MARK = "#"  # replaced with the row number in the template
_XML_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def make_sheet_path(number: int) -> str:
    return f"xl/worksheets/sheet{number}.xml"


def build_package_parts(sheets: int, name: str) -> dict[str, str]:
    """Return every part except the sheets, by path."""
    numbers = range(1, sheets + 1)
    styles = sheets + 1
    overrides = {f"/{make_sheet_path(n)}": "worksheet" for n in numbers}
    overrides |= {"/xl/workbook.xml": "sheet.main", "/xl/styles.xml": "styles"}
    listed = "".join(
        f'<sheet name="{_add_number_to_sheet_name(name, n)}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers
    )
    related = [(n, "worksheet", f"worksheets/sheet{n}.xml") for n in numbers] + [(styles, "styles", "styles.xml")]
    parts = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        + "".join(
            f'<Override PartName="{path}" ContentType="{_CONTENT_TYPE_PREFIX}.{kind}+xml"/>'
            for path, kind in overrides.items()
        )
        + "</Types>",
        "_rels/.rels": _build_relationships_xml([(1, "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{_SPREADSHEET_NS}" xmlns:r="{_RELATIONSHIP_TYPES_NS}">'
        "<bookViews><workbookView/></bookViews>"
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _build_relationships_xml(related),
        "xl/styles.xml": _STYLES_XML,
    }
    return {path: _XML_DECLARATION + part for path, part in parts.items()}


def format_column_letters(number: int) -> str:
    """Return the letters of a column, counted from 0: A, B, … Z, AA."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def make_row_xml_template(columns: int) -> str:
    """Return the XML of a row with a %s placeholder for the end of each cell."""
    return (
        f'<row r="{ROW_NUMBER_MARK}">'
        + "".join(f'<c r="{format_column_letters(n)}{ROW_NUMBER_MARK}"%s' for n in range(columns))
        + "</row>"
    )


def format_number_cell_xml(text: str) -> str:
    """Return the end of a number cell: the XML after the cell reference, which the row template contains."""
    return f"><v>{text}</v></c>"


def format_date_cell_xml(days: float, precision: Literal["date", "seconds", "milliseconds"]) -> str:
    """Return the end of a date cell; ``days`` is the serial number of the date."""
    return f' s="{_DATE_STYLE_IDS[precision]}"><v>{days!r}</v></c>'


def format_boolean_cell_xml(flag: bool) -> str:
    return _BOOLEAN_CELL_XML[flag]


def add_header_style_to_cell_xml(cell: str) -> str:
    return ' s="1"' + cell


def is_plain_text(text: str) -> bool:
    """Return whether a text surely needs no escaping. A fast check: False for some texts that need none either."""
    return (
        text.isprintable()
        and "&" not in text
        and "<" not in text
        and ">" not in text
        and "_x" not in text
        and len(text) < _PLAIN_TEXT_MAX_CHARS
        and not text.startswith(" ")
        and not text.endswith(" ")
    )


def format_plain_text_cell_xml(text: str) -> str:
    return f' t="inlineStr"><is><t>{text}</t></is></c>'


def format_escaped_text_cell_xml(text: str) -> str:
    space = "" if text == text.strip() else ' xml:space="preserve"'
    return f' t="inlineStr"><is><t{space}>{escape_xlsx_text(text)}</t></is></c>'


def escape_xlsx_text(text: str) -> str:
    return _XML_SPECIAL.sub(_escape_match, text)


def truncate_utf16(text: str, max_units: int) -> str:
    """Return a text cut to ``max_units`` UTF-16 units; the same object if it is short enough."""
    if 2 * len(text) <= max_units:
        return text
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * max_units:
        return text
    return encoded[: 2 * max_units].decode("utf-16-le", errors="ignore")


def _escape_match(match: re.Match[str]) -> str:
    character = match.group()
    return _XML_ENTITIES.get(character) or f"_x{ord(character):04X}_"


def _add_number_to_sheet_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _build_relationships_xml(related: list[tuple[int, str, str]]) -> str:
    each = (
        f'<Relationship Id="rId{n}" Type="{_RELATIONSHIP_TYPES_NS}/{kind}" Target="{target}"/>'
        for n, kind, target in related
    )
    return f'<Relationships xmlns="{_RELATIONSHIPS_NS}">{"".join(each)}</Relationships>'


ROWS_PER_SHEET_MAX = 1_048_576
CELL_TEXT_MAX_UTF16_UNITS = 32_767
BYTES_PER_SHEET_MAX = 1_900_000_000  # below 2 GiB a zip needs no zip64, which some readers do not support
SHEET_CHUNK_ROWS = 1_000
XLSX_DEFLATE_LEVEL = 3


class _AbandonableZip(zipfile.ZipFile):
    def __del__(self) -> None:
        """Do nothing: a workbook that was not closed is incomplete."""


class WorkbookWriter:
    """Writes a workbook to an output that cannot seek. Starts another sheet with the same header when one is full.

    A row is a tuple of formatted cells, one for each name in the header.
    """

    def __init__(self, output: ByteOutput, header: Iterable[str], name: str) -> None:
        self.cut_cells = 0
        self._name = name
        self._header = tuple(add_header_style_to_cell_xml(self.format_text_cell_xml(each)) for each in header)
        self._template = make_row_xml_template(len(self._header))
        self._zip = _AbandonableZip(output, "w", zipfile.ZIP_DEFLATED, compresslevel=XLSX_DEFLATE_LEVEL)  # type: ignore[call-overload]
        self._sheet: IO[bytes] | None = None
        self._sheets = self._row = self._bytes = 0

    def format_text_cell_xml(self, text: str) -> str:
        """Return the end of a text cell, truncated to the maximum length of a cell."""
        if is_plain_text(text):
            return format_plain_text_cell_xml(text)
        short = truncate_utf16(text, CELL_TEXT_MAX_UTF16_UNITS)
        self.cut_cells += short is not text
        return format_escaped_text_cell_xml(short)

    def write(self, rows: Iterable[tuple[str, ...]]) -> None:
        piece: list[str] = []
        for row in rows:
            if self._sheet is None or self._row == ROWS_PER_SHEET_MAX or self._bytes > BYTES_PER_SHEET_MAX:
                self._write_chunk(piece)
                self._start_sheet()
            piece.append(self._make_next_row_xml(row))
            if len(piece) == SHEET_CHUNK_ROWS:
                self._write_chunk(piece)
        self._write_chunk(piece)

    def close(self) -> None:
        if self._sheet is None:
            self._start_sheet()
        self._end_sheet()
        for name, part in build_package_parts(self._sheets, self._name).items():
            self._zip.writestr(name, part)
        self._zip.close()

    def _write_chunk(self, piece: list[str]) -> None:
        if self._sheet is not None and piece:
            self._bytes += self._sheet.write("".join(piece).encode())
            piece.clear()

    def _start_sheet(self) -> None:
        self._end_sheet()
        self._sheets += 1
        self._row = self._bytes = 0
        self._sheet = self._zip.open(make_sheet_path(self._sheets), "w")
        self._sheet.write(SHEET_XML_HEAD)
        self._write_chunk([self._make_next_row_xml(self._header)])

    def _end_sheet(self) -> None:
        if self._sheet is not None:
            self._sheet.write(SHEET_XML_TAIL)
            self._sheet.close()

    def _make_next_row_xml(self, row: tuple[str, ...]) -> str:
        self._row += 1
        return self._template.replace(ROW_NUMBER_MARK, str(self._row)) % row
