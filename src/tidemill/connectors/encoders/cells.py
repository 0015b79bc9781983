"""From the text that COPY has for a value to the cell of a spreadsheet: a real one where nothing is lost by it."""

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import lru_cache

from tidemill.connectors.writers.output import defuse
from tidemill.connectors.writers.xlsx_parts import Moment
from tidemill.domain.columns import LARGEST_EXACT
from tidemill.domain.form import Column

Cell = str | int | float | bool | Moment | None
ToCell = Callable[[str], Cell]

EXACT_DIGITS = 15  # a spreadsheet keeps no more of a number
LARGEST, SMALLEST = 9.99999999999999e307, 2.3e-308
FIRST_DAY = date(1900, 3, 1)  # the format believes in a 29 February before it
_EPOCH = date(1899, 12, 30).toordinal()
_DAY_MS = 86_400_000
_FLOATS = ("real", "double precision")
_FORMULAS = ("text", "other")  # nothing else can hold one
_WHOLE = re.compile(r"-?[1-9][0-9]*|0").fullmatch
_DECIMAL = re.compile(r"-?([0-9]+)(?:\.([0-9]+))?").fullmatch


def to_cell(column: Column, *, spreadsheet_safe: bool) -> ToCell:
    """How the values of a column become cells. None of them is empty."""
    match column.type:
        case "integer":
            return _integer
        case "number":
            return _float if column.sql_type in _FLOATS else _number
        case "boolean":
            return _boolean
        case "date":
            return _date
        case "timestamp":
            return _timestamp
        case other:
            return defuse if spreadsheet_safe and other in _FORMULAS else str


def _integer(text: str) -> Cell:
    if _WHOLE(text):
        number = int(text)
        if -LARGEST_EXACT <= number <= LARGEST_EXACT:
            return number
    return text


def _number(text: str) -> Cell:
    """A numeric has any number of digits, and may be none at all."""
    found = _DECIMAL(text)
    if found is None or len((found[1] + (found[2] or "")).lstrip("0")) > EXACT_DIGITS:
        return text
    return float(text) if found[2] else _integer(text)


def _float(text: str) -> Cell:
    number = float(text)
    is_held = math.isfinite(number) and (SMALLEST <= abs(number) <= LARGEST or text == "0")
    return number if is_held else text


def _boolean(text: str) -> Cell:
    return {"t": True, "f": False}.get(text, text)


def _date(text: str) -> Cell:
    day = _day(text)
    return text if day is None else Moment(day, "date")


def _timestamp(text: str) -> Cell:
    """In UTC: a cell has no zone. Milliseconds are kept; what is finer is text, whole."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    milliseconds, finer = divmod(moment.microsecond, 1_000)
    if finer or moment.date() < FIRST_DAY:
        return text
    seconds = (moment.hour * 60 + moment.minute) * 60 + moment.second
    days = moment.toordinal() - _EPOCH + (seconds * 1_000 + milliseconds) / _DAY_MS
    return Moment(days, "milliseconds" if milliseconds else "seconds")


@lru_cache(maxsize=4_096)
def _day(text: str) -> int | None:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        return None
    return day.toordinal() - _EPOCH if day >= FIRST_DAY else None
