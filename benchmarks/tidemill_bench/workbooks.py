"""Write the same rows as workbooks with Tidemill and with XlsxWriter."""

import csv
import importlib.util
import itertools
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from tidemill.core.file_format import OutputFileSpec
from tidemill.files.writers import open_copy_encoder

WORKBOOK_READ_CHUNK_BYTES = 64 * 1024


def has_xlsxwriter() -> bool:
    return importlib.util.find_spec("xlsxwriter") is not None


def write_with_tidemill(form: OutputFileSpec, rows: Path, made: Path) -> float:
    """Encode the output of COPY as a workbook; return the seconds."""
    started = time.monotonic()
    with rows.open("rb") as file, made.open("wb") as output:
        encoder = open_copy_encoder(form, output)
        while chunk := file.read(WORKBOOK_READ_CHUNK_BYTES):
            encoder.write(chunk)
        encoder.close()
    return time.monotonic() - started


def write_with_xlsxwriter(form: OutputFileSpec, rows: Path, made: Path) -> float:
    """Write the same cells with XlsxWriter in constant-memory mode; return the seconds."""
    import xlsxwriter  # noqa: PLC0415  only for the comparison

    started = time.monotonic()
    book = xlsxwriter.Workbook(made, {"constant_memory": True, "default_date_format": "yyyy-mm-dd hh:mm:ss"})
    sheet = book.add_worksheet()
    writes = [_choose_cell_writer(sheet, column.type) for column in form.columns]
    with rows.open(newline="") as file:
        lines = csv.reader(file)
        sheet.write_row(0, 0, next(lines))
        for number, line in enumerate(lines, 1):
            for at, (write, text) in enumerate(zip(writes, line, strict=True)):
                write(number, at, text)
    book.close()
    return time.monotonic() - started


def copy_first_rows(whole: Path, some: Path, rows: int) -> None:
    """Copy the header and the first ``rows`` lines."""
    with whole.open("rb") as file, some.open("wb") as head:
        head.writelines(itertools.islice(file, rows + 1))


def _choose_cell_writer(sheet: Any, type_: str) -> Callable[[int, int, str], Any]:
    match type_:
        case "boolean":
            return lambda row, at, text: sheet.write_boolean(row, at, text == "true")
        case "timestamp":
            return lambda row, at, text: sheet.write_datetime(
                row, at, datetime.fromisoformat(text).replace(tzinfo=None)
            )
        case _:
            return sheet.write_string  # type: ignore[no-any-return]
