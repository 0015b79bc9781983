"""Which styles of a workbook show dates, and what their numbers mean."""

import re
from datetime import UTC, datetime, timedelta
from typing import Literal

from tidemill.connectors.xlsx_xml import Attributes, Part

Shown = Literal["date", "datetime", "time", "duration"]
_BUILT_IN: dict[int, Shown] = {
    **dict.fromkeys((14, 15, 16, 17, *range(27, 32), 36, *range(50, 59)), "date"),
    **dict.fromkeys((18, 19, 20, 21, 32, 33, 34, 35, 45, 47), "time"),
    22: "datetime",
    46: "duration",
}
_QUIET = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_LEAP_THAT_NEVER_WAS = 60  # 29 February 1900, which the format believes in
STYLES_MAX = 100_000


class Styles(Part):
    """The number format of every cell style."""

    def __init__(self) -> None:
        self.shown: list[Shown | None] = []
        self._formats: dict[int, Shown | None] = {}
        self._is_cell = False

    def start(self, name: str, attributes: Attributes) -> None:
        if name == "numFmt" and len(self._formats) < STYLES_MAX:
            self._formats[_number(attributes.get("numFmtId"))] = what_it_shows(attributes.get("formatCode", ""))
        elif name == "cellXfs":
            self._is_cell = True
        elif name == "xf" and self._is_cell and len(self.shown) < STYLES_MAX:
            number = _number(attributes.get("numFmtId"))
            self.shown.append(self._formats.get(number, _BUILT_IN.get(number)))

    def end(self, name: str) -> None:
        if name == "cellXfs":
            self._is_cell = False


def what_it_shows(code: str) -> Shown | None:
    """Whether a number format shows a date, a time, or neither."""
    words = _QUIET.sub("", code.partition(";")[0]).lower()
    if "[" in words:
        return "duration"
    if "general" in words:
        return None
    has_time = "h" in words or "s" in words
    if "y" in words or "d" in words or ("m" in words and not has_time):
        return "datetime" if has_time else "date"
    return "time" if has_time else None


def as_date(number: float, shown: Shown, *, is_1904: bool) -> str | None:
    """A number as the date it stands for, in ISO 8601; None if it stands for none."""
    if shown == "duration" or (shown == "time" and 0 <= number < 1):
        seconds = round(number * 86_400)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}" if number >= 0 else None
    if number < 0 or (not is_1904 and int(number) == _LEAP_THAT_NEVER_WAS):
        return None
    epoch = datetime(1904, 1, 1, tzinfo=UTC) if is_1904 else datetime(1899, 12, 30, tzinfo=UTC)
    days = number + 1 if not is_1904 and number < _LEAP_THAT_NEVER_WAS else number
    try:
        moment = epoch + timedelta(milliseconds=round(days * 86_400_000))
    except OverflowError:
        return None
    if shown == "date" and number == int(number):
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds" if moment.microsecond else "seconds")


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdecimal() else 0
