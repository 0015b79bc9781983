"""Workbooks for tests: valid ones, and ones that no program would write."""

import io
import zipfile
from collections.abc import Iterable
from typing import Any

import openpyxl

_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_TYPES = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def workbook(rows: Iterable[Iterable[Any]], **sheets: Iterable[Iterable[Any]]) -> bytes:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(list(row))
    for name, others in sheets.items():
        sheet = book.create_sheet(name)
        for row in others:
            sheet.append(list(row))
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def handmade(data: str, *, head: str = "", strings: str = "", styles: str = "", properties: str = "") -> bytes:
    """Return a workbook with exactly this sheet data. ``head`` precedes the root element of the sheet."""
    parts = {
        "_rels/.rels": _links(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_TYPES}">{properties}'
        '<sheets><sheet name="one" sheetId="1" r:id="rId1"/></sheets></workbook>',
        "xl/_rels/workbook.xml.rels": _links(
            ("worksheet", "worksheets/one.xml"), ("sharedStrings", "sharedStrings.xml"), ("styles", "styles.xml")
        ),
        "xl/worksheets/one.xml": f'{head}<worksheet xmlns="{_MAIN}"><sheetData>{data}</sheetData></worksheet>',
    }
    parts |= {"xl/sharedStrings.xml": f'<sst xmlns="{_MAIN}">{strings}</sst>'} if strings else {}
    parts |= {"xl/styles.xml": f'<styleSheet xmlns="{_MAIN}">{styles}</styleSheet>'} if styles else {}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    return file.getvalue()


def cell(reference: str, value: object) -> str:
    kind = ' t="inlineStr"' if isinstance(value, str) else ""
    inner = f"<is><t>{value}</t></is>" if isinstance(value, str) else f"<v>{value}</v>"
    return f'<c r="{reference}"{kind}>{inner}</c>'


def _links(*targets: tuple[str, str]) -> str:
    lines = (
        f'<Relationship Id="rId{n}" Type="{_TYPES}/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(targets, 1)
    )
    return f"<Relationships>{''.join(lines)}</Relationships>"
