"""The fixed parts of a workbook, and what text must look like in it."""

import re
from typing import Literal

_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_CONTENT = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'

# The first row stays in sight.
SHEET_HEAD = (
    f'{_DECLARATION}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/></sheetView></sheetViews><sheetData>'
).encode()
SHEET_TAIL = b"</sheetData></worksheet>"
_STYLES = (
    f'<styleSheet xmlns="{_MAIN}"><numFmts count="3"><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd"/>'
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

# What XML cannot hold is written as _xHHHH_; so is a carriage return, which XML readers turn into a line feed, and
# text that looks like such an escape.
_SPECIAL = re.compile("[&<>\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
_MOST_PLAIN = 16_000  # characters that fit into a cell, whatever they are
_SHOWN = {"date": 2, "seconds": 3, "milliseconds": 4}  # styles of moments
_BOOLEANS = {flag: f' t="b"><v>{flag:d}</v></c>' for flag in (False, True)}
EMPTY = "/>"  # a cell without a value
ROW = "#"  # where the number of a row stands in its template
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def sheet_path(number: int) -> str:
    return f"xl/worksheets/sheet{number}.xml"


def package(sheets: int, name: str) -> dict[str, str]:
    """Every part but the sheets themselves, by its path."""
    numbers = range(1, sheets + 1)
    styles = sheets + 1
    overrides = {f"/{sheet_path(n)}": "worksheet" for n in numbers}
    overrides |= {"/xl/workbook.xml": "sheet.main", "/xl/styles.xml": "styles"}
    listed = "".join(f'<sheet name="{_sheet_name(name, n)}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    related = [(n, "worksheet", f"worksheets/sheet{n}.xml") for n in numbers] + [(styles, "styles", "styles.xml")]
    found = {
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        + "".join(
            f'<Override PartName="{path}" ContentType="{_CONTENT}.{kind}+xml"/>' for path, kind in overrides.items()
        )
        + "</Types>",
        "_rels/.rels": _relationships([(1, "officeDocument", "xl/workbook.xml")]),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_TYPES}"><bookViews><workbookView/></bookViews>'
        f"<sheets>{listed}</sheets></workbook>",
        "xl/_rels/workbook.xml.rels": _relationships(related),
        "xl/styles.xml": _STYLES,
    }
    return {path: _DECLARATION + part for path, part in found.items()}


def letters(number: int) -> str:
    """The name of a column, from 0: A, B, … Z, AA."""
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def row_template(columns: int) -> str:
    """A row, with a gap for the rest of each cell behind its reference."""
    return f'<row r="{ROW}">' + "".join(f'<c r="{letters(n)}{ROW}"%s' for n in range(columns)) + "</row>"


def number(text: str) -> str:
    """A cell of a number that is written like this."""
    return f"><v>{text}</v></c>"


def moment(days: float, shown: Literal["date", "seconds", "milliseconds"]) -> str:
    """A cell of a day, or of a time of a day, as a workbook counts them."""
    return f' s="{_SHOWN[shown]}"><v>{days!r}</v></c>'


def boolean(flag: bool) -> str:
    return _BOOLEANS[flag]


def in_header(cell: str) -> str:
    return ' s="1"' + cell


def is_plain(text: str) -> bool:
    """Whether a text can stand in a cell as it is. Some texts that could are not, for the sake of speed."""
    return (
        text.isprintable()
        and "&" not in text
        and "<" not in text
        and ">" not in text
        and "_x" not in text
        and len(text) < _MOST_PLAIN
        and not text.startswith(" ")
        and not text.endswith(" ")
    )


def plain_text(text: str) -> str:
    return f' t="inlineStr"><is><t>{text}</t></is></c>'


def odd_text(text: str) -> str:
    space = "" if text == text.strip() else ' xml:space="preserve"'
    return f' t="inlineStr"><is><t{space}>{escape(text)}</t></is></c>'


def escape(text: str) -> str:
    return _SPECIAL.sub(_escaped, text)


def cut(text: str, most: int) -> str:
    """At most so many UTF-16 units of a text; the very same text if it is short enough."""
    if 2 * len(text) <= most:
        return text
    encoded = text.encode("utf-16-le")
    if len(encoded) <= 2 * most:
        return text
    return encoded[: 2 * most].decode("utf-16-le", errors="ignore")


def _escaped(match: re.Match[str]) -> str:
    character = match.group()
    return _ENTITIES.get(character) or f"_x{ord(character):04X}_"


def _sheet_name(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _relationships(related: list[tuple[int, str, str]]) -> str:
    each = (f'<Relationship Id="rId{n}" Type="{_TYPES}/{kind}" Target="{target}"/>' for n, kind, target in related)
    return f'<Relationships xmlns="{_RELATIONS}">{"".join(each)}</Relationships>'
