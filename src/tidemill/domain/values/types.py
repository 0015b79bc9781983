"""One reader per type: texts in, the text form that PostgreSQL takes out, and where it cannot be."""

import base64
import binascii
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import MAXYEAR, date, datetime, time, timedelta
from typing import Any
from uuid import UUID

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Found, Texts, mended, mismatches
from tidemill.domain.values.documents import read_json
from tidemill.domain.values.numbers import read_integer, read_number

_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?)"  # PostgreSQL has none 16 hours away
_ZONE_MAX = timedelta(hours=16)
ENDS = ("infinity", "-infinity")
_MOMENT = rf"{_DATE}[T ]{_TIME}"
_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
_BOOLEANS = dict.fromkeys(_TRUE, "t") | dict.fromkeys(_FALSE, "f")
_plain_uuid = re.compile(r"[{]?([0-9a-fA-F]{32})[}]?").fullmatch
_moment = re.compile(rf"({_MOMENT})({_ZONE})?").fullmatch
_time = re.compile(rf"([0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?)(?:{_ZONE})?").fullmatch
_far = re.compile(rf"([0-9]{{4,7}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]({_TIME})({_ZONE})?)?( BC)?").fullmatch
_LAST_HOURS = ("24:00", "24:00:00")
_LAST_YEAR = {"date": 5_874_897, "timestamp": 294_275}  # the last whole one in every zone
_FIRST_YEAR_BC = 4_713


def read_text(_: Field, texts: Texts) -> Found:
    return texts, {}


def read_boolean(_: Field, texts: Texts) -> Found:
    found: Texts = list(map(_BOOLEANS.get, texts))  # type: ignore[arg-type]
    wrong = {}
    if None in found:
        for index, text in enumerate(texts):
            if found[index] is None and text is not None:
                found[index] = _BOOLEANS.get(text.lower())
                if found[index] is None:
                    wrong[index] = "not true or false"
    return found, wrong


def read_uuid(_: Field, texts: Texts) -> Found:
    wrong = dict.fromkeys(mismatches(_UUID, texts), "not a UUID")
    return mended(texts, wrong, _canonical)


def _canonical(text: str) -> str | None:
    found = _plain_uuid(text.replace("-", ""))
    return None if found is None else str(UUID(found[1]))


def read_date(field: Field, texts: Texts) -> Found:
    return _read_dates(field, texts, _DATE, date.fromisoformat, _as_date, "not a date like 2026-11-15")


def read_time(field: Field, texts: Texts) -> Found:
    return _read_dates(field, texts, _TIME, time.fromisoformat, _as_time, "not a time like 13:45:00")


def read_timestamp(field: Field, texts: Texts) -> Found:
    shape = _MOMENT + (_ZONE if field.with_zone else "")
    mend = _as_moment if field.with_zone else _as_local
    return _read_dates(field, texts, shape, datetime.fromisoformat, mend, "not a time like 2026-11-15T13:45:00Z")


def _read_dates(
    field: Field, texts: Texts, shape: str, parse: Callable[[str], Any], mend: Callable[..., str | None], says: str
) -> Found:
    """ISO 8601 goes through as it is once the calendar has agreed; other spellings are read one by one."""
    odd = set(mismatches(shape, texts))
    if not odd and _all_parse(parse, texts):
        return texts, {}
    found, wrong = list(texts), {}
    for index, text in enumerate(texts):
        if text is not None and (index in odd or not _all_parse(parse, [text])):
            found[index] = _endless(field, text) or _beyond(field, text) or mend(text, field.formats)
            if found[index] is None:
                wrong[index] = says if not field.formats else f"{says}, or {', '.join(field.formats)}"
    return found, wrong


def _endless(field: Field, text: str) -> str | None:
    """PostgreSQL's dates and times have two ends of their own."""
    return text.lower() if field.type != "time" and text.lower() in ENDS else None


def _beyond(field: Field, text: str) -> str | None:
    """What PostgreSQL has and Python's calendar has not: years before 1 and after 9999, and the end of a day."""
    if field.type == "time":
        return text if text in _LAST_HOURS else None
    found = _far(text)
    if found is None:
        return None
    day, hour, zone, era = found.groups(default="")
    if not _is_far(day, era, _LAST_YEAR[field.type]) or not _all_parse(time.fromisoformat, [hour]):
        return None
    if field.type == "date":
        return None if hour else day + era
    return f"{day}T{hour or '00:00:00'}{(zone or '+00:00') if field.with_zone else ''}{era}"


def _is_far(day: str, era: str, last: int) -> bool:
    """Whether there is such a day. The calendar is the same every 400 years; before the year 1 was a year 0."""
    year, month, number = map(int, day.split("-"))
    same = 2000 + (1 - year if era else year) % 400
    is_within = 1 <= year <= _FIRST_YEAR_BC if era else MAXYEAR < year <= last
    return is_within and _all_parse(date.fromisoformat, [f"{same}-{month:02}-{number:02}"])


def _all_parse(parse: Callable[[str], Any], texts: Texts) -> bool:
    try:
        deque(map(parse, filter(None, texts)), maxlen=0)
    except ValueError:
        return False
    return True


def _parsed(text: str, formats: Sequence[str]) -> datetime | None:
    for pattern in formats:
        try:
            return datetime.strptime(text, pattern)  # noqa: DTZ007  the zone is what the pattern says
        except ValueError:
            continue
    return None


def _iso(text: str) -> datetime | None:
    found = _moment(text) or _moment(text + "T00:00:00")
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[0])
    except ValueError:
        return None


def _as_date(text: str, formats: Sequence[str]) -> str | None:
    found = _parsed(text, formats) or _iso(text)
    return None if found is None else found.date().isoformat()


def _as_time(text: str, formats: Sequence[str]) -> str | None:
    found = _parsed(text, formats)
    if found is not None:
        return found.time().isoformat()
    shaped = _time(text)  # Python would also take 20261115 for a time of day
    try:
        return shaped[1] if shaped and time.fromisoformat(shaped[1]) is not None else None
    except ValueError:
        return None


def _as_moment(text: str, formats: Sequence[str]) -> str | None:
    """Without a zone it is UTC: the server's own idea of here must not decide."""
    found = _parsed(text, formats) or _iso(text)
    if found is None:
        return None
    offset = found.utcoffset()
    if offset is None:
        return found.isoformat() + "+00:00"
    return found.isoformat() if abs(offset) < _ZONE_MAX and not offset.microseconds else None


def _as_local(text: str, formats: Sequence[str]) -> str | None:
    found = _parsed(text, formats) or _iso(text)
    return None if found is None else found.replace(tzinfo=None).isoformat()


def read_bytes(_: Field, texts: Texts) -> Found:
    def as_bytes(text: str) -> str | None:
        try:
            data = bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return None
        return "\\x" + data.hex()

    wrong = {index: "neither base64 nor hexadecimal after \\x" for index, text in enumerate(texts) if text is not None}
    return mended(texts, wrong, as_bytes)


READERS: dict[str, Callable[[Field, Texts], Found]] = {
    "text": read_text,
    "integer": read_integer,
    "number": read_number,
    "boolean": read_boolean,
    "date": read_date,
    "time": read_time,
    "timestamp": read_timestamp,
    "uuid": read_uuid,
    "json": read_json,
    "bytes": read_bytes,
    "other": read_text,
}
