"""From the texts that COPY has for a column to cells of a workbook: real ones where nothing is lost by it."""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

from tidemill.connectors.writers.xlsx_parts import EMPTY, boolean, moment, number
from tidemill.domain.columns import LARGEST_EXACT
from tidemill.domain.form import Column

Make = Callable[[str], str | None]
"""A cell of a value; None for one that must be text."""

EXACT_DIGITS = 15  # a spreadsheet keeps no more of a number
EXACT_PLACES = 300  # after the point: what is smaller may be nothing to it
LARGEST, SMALLEST = 9.99999999999999e307, 2.3e-308
EPOCH = date(1899, 12, 30).toordinal()
FIRST_DAY = date(1900, 3, 1).toordinal()  # the format believes in a 29 February before it
_DAY_MS = 86_400_000
_FLOATS = ("real", "double precision")
_BOOLEANS = {"t": boolean(True), "true": boolean(True), "f": boolean(False), "false": boolean(False)}
_WHOLE = re.compile(r"-?[1-9][0-9]*|0").fullmatch
_DECIMAL = re.compile(r"-?([0-9]+)\.([0-9]+)").fullmatch


class Cells:
    """Makes the cells of a column. An empty value is an empty cell."""

    def __init__(self, column: Column, as_text: Callable[[str], str]) -> None:
        self._make = _maker(column)
        self._as_text = as_text

    def of(self, values: Iterable[str]) -> Iterable[str]:
        make, as_text = self._make, self._as_text
        if make is None:
            return [as_text(value) if value else EMPTY for value in values]
        return [(make(value) or as_text(value)) if value else EMPTY for value in values]


def _maker(column: Column) -> Make | None:
    match column.type:
        case "integer":
            return _integer
        case "number":
            return _float if column.sql_type in _FLOATS else _number
        case "boolean":
            return _BOOLEANS.get
        case "date":
            return _date
        case "timestamp":
            return _timestamp
        case _:
            return None


def _integer(text: str) -> str | None:
    is_exact = _WHOLE(text) and -LARGEST_EXACT <= int(text) <= LARGEST_EXACT
    return number(text) if is_exact else None


def _number(text: str) -> str | None:
    """A numeric has any number of digits, and may be none at all."""
    found = _DECIMAL(text)
    if found is None:
        return _integer(text) if len(text.lstrip("-")) <= EXACT_DIGITS else None
    is_held = len(found[2]) <= EXACT_PLACES and len((found[1] + found[2]).lstrip("0")) <= EXACT_DIGITS
    return number(text) if is_held else None


def _float(text: str) -> str | None:
    value = float(text)
    is_held = math.isfinite(value) and (SMALLEST <= abs(value) <= LARGEST or text == "0")
    return number(text) if is_held else None


def _date(text: str) -> str | None:
    try:
        day = date.fromisoformat(text).toordinal()
    except ValueError:
        return None
    return moment(day - EPOCH, "date") if day >= FIRST_DAY else None


def _timestamp(text: str) -> str | None:
    """In UTC: a cell has no zone. Milliseconds are kept; what is finer is text, whole."""
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo is not None and at.tzinfo is not UTC:
            at = at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    milliseconds, finer = divmod(at.microsecond, 1_000)
    day = at.toordinal()
    if finer or day < FIRST_DAY:
        return None
    seconds = (at.hour * 60 + at.minute) * 60 + at.second
    days = day - EPOCH + (seconds * 1_000 + milliseconds) / _DAY_MS
    return moment(days, "milliseconds" if milliseconds else "seconds")
