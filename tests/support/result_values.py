"""Values that are difficult to write to a file, and readers of each format."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
from openpyxl.utils.escape import unescape

from tidemill.core.result_grid import GridCell, KnownFields, ResultFileColumns, resolve_result_file_columns


def result_columns(*names: str) -> ResultFileColumns:
    """Return the columns of a result file without inputs."""
    return resolve_result_file_columns([], KnownFields((), names))


LONG = "long " * 8_000  # longer than the limit of a spreadsheet cell

HOSTILE: dict[str, Any] = {
    "quotes": 'she said "hi", twice: ""',
    "lines": "one\ntwo\r\nthree\rfour",
    "separators": "a,b;c\td|e",
    "spaces": "  both sides  ",
    "formula": "=1+1",
    "command": "@SUM(1)|cmd /C calc!A0",
    "minus": "-1",
    "zeros": "007",
    "number_like": "1e5",
    "true_like": "true",
    "empty": "",
    "nothing": None,
    "yes": True,
    "no": False,
    "zero": 0,
    "one": 1,
    "negative": -12,
    "exact": 2**53 - 1,
    "big": 12345678901234567890123,
    "float": 0.1 + 0.2,
    "whole_float": 3.0,
    "tiny": 5e-8,
    "huge": 1e300,
    "unicode": "žluťoučký 日本語 \u202eright to left\u202c \ufeff",
    "emoji": "👩‍👩‍👧 🇨🇿",
    "control": "bell\x07 escape\x1b unit\x1f end",
    "escape_like": "_x0041_ and _x005F_",
    "markup": "<b>&amp;</b> ]]> <!--",
    "list": [1, "two", None, {"three": [3.5]}],
    "object": {"b": 1, "a": {"deep": "ž\n"}},
    "empty_list": [],
    "long": LONG,
    "": "a column without a name",
    'odd, "name"\n': "an odd one",
}


def read_csv(path: Path) -> list[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file, strict=True))


def read_ndjson(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def read_xlsx(path: Path) -> list[list[list[Any]]]:
    """Return the rows of each sheet. Texts are unescaped, because openpyxl does not do that."""
    book = openpyxl.load_workbook(path)
    return [[[_unescaped(value) for value in row] for row in sheet.iter_rows(values_only=True)] for sheet in book]


def _unescaped(value: Any) -> Any:
    return unescape(value) if isinstance(value, str) else value


def as_csv(cells: Sequence[GridCell]) -> list[str]:
    """Return the texts that the csv module reads from a row with these cells."""
    return [_csv_field(cell) for cell in cells]


def _csv_field(cell: GridCell) -> str:
    match cell:
        case None:
            return ""
        case bool():
            return "true" if cell else "false"
        case str():
            return cell
        case _:
            return json.dumps(cell)
