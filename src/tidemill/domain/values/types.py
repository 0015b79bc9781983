"""One reader per type: texts in, the text form that PostgreSQL takes out, and where it cannot be."""

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Texts, failing, mismatches

Found = tuple[Texts, dict[int, str]]
"""The texts, and what is wrong with some of them."""

_INTEGER = r"[+-]?[0-9]{1,18}"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_UUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_MOMENT = rf"{_DATE}[T ]{_TIME}"
_TRUE, _FALSE = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
_BOOLEANS = dict.fromkeys(_TRUE, "t") | dict.fromkeys(_FALSE, "f")
_number = re.compile(_NUMBER).fullmatch
_plain_uuid = re.compile(r"[{]?([0-9a-fA-F]{32})[}]?").fullmatch
_moment = re.compile(rf"({_MOMENT})({_ZONE})?").fullmatch


def read_text(_: Field, texts: Texts) -> Found:
    return texts, {}


def read_integer(field: Field, texts: Texts) -> Found:
    wrong = dict.fromkeys(mismatches(_INTEGER, texts), "not a whole number")
    texts, wrong = _mended(texts, wrong, _whole)
    limit = 1 << ((field.bits or 64) - 1)
    digits = len(str(limit))
    if any(text is not None and len(text) >= digits for text in texts):
        for index, text in enumerate(texts):
            if text is not None and index not in wrong and not -limit <= int(text) < limit:
                wrong[index] = f"not between {-limit} and {limit - 1}"
    return texts, wrong


def _whole(text: str) -> str | None:
    """A whole number in another spelling: 5.0, 1e3, or more digits than usual."""
    try:
        value = Decimal(text) if _number(text) else None
    except InvalidOperation:
        return None
    if value is None or abs(value) >= 10**20 or value != value.to_integral_value():
        return None
    return str(int(value))


def read_number(field: Field, texts: Texts) -> Found:
    wrong = dict.fromkeys(mismatches(_NUMBER, texts), "not a number")
    if field.precision is not None:
        whole = field.precision - (field.scale or 0)
        limit = Decimal(10) ** whole
        for index, text in enumerate(texts):
            if text is not None and len(text) > whole and index not in wrong and abs(Decimal(text)) >= limit:
                wrong[index] = f"more than {whole} digits before the point"
    elif field.sql_type in ("real", "double precision"):
        most = 3.4028235e38 if field.sql_type == "real" else 1.7976931348623157e308
        far = [i for i, text in enumerate(texts) if text and i not in wrong and abs(Decimal(text)) > most]
        wrong |= dict.fromkeys(far, "too large")
    return texts, wrong


def read_boolean(_: Field, texts: Texts) -> Found:
    found: Texts = list(map(_BOOLEANS.get, texts))  # type: ignore[arg-type]
    wrong = {}
    if None in found:
        for index, text in enumerate(texts):
            if found[index] is None and text is not None:
                found[index] = _BOOLEANS.get(text.strip().lower())
                if found[index] is None:
                    wrong[index] = "not true or false"
    return found, wrong


def read_uuid(_: Field, texts: Texts) -> Found:
    wrong = dict.fromkeys(mismatches(_UUID, texts), "not a UUID")
    return _mended(texts, wrong, _canonical)


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
            found[index] = mend(text, field.formats)
            if found[index] is None:
                wrong[index] = says if not field.formats else f"{says}, or {', '.join(field.formats)}"
    return found, wrong


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
    text = text.strip()
    found = _parsed(text, formats) or _iso(text)
    return None if found is None else found.date().isoformat()


def _as_time(text: str, formats: Sequence[str]) -> str | None:
    found = _parsed(text.strip(), formats)
    try:
        return (found.time() if found else time.fromisoformat(text.strip())).isoformat()
    except ValueError:
        return None


def _as_moment(text: str, formats: Sequence[str]) -> str | None:
    """Without a zone it is UTC: the server's own idea of here must not decide."""
    found = _parsed(text.strip(), formats) or _iso(text.strip())
    if found is None:
        return None
    return found.isoformat() if found.tzinfo is not None else found.isoformat() + "+00:00"


def _as_local(text: str, formats: Sequence[str]) -> str | None:
    found = _parsed(text.strip(), formats) or _iso(text.strip())
    return None if found is None else found.replace(tzinfo=None).isoformat()


def read_json(_: Field, texts: Texts) -> Found:
    def is_json(text: str) -> bool:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return "\\u0000" not in text

    return texts, dict.fromkeys(failing(is_json, texts), "not JSON")


def read_bytes(_: Field, texts: Texts) -> Found:
    def as_bytes(text: str) -> str | None:
        try:
            data = bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return None
        return "\\x" + data.hex()

    wrong = {index: "neither base64 nor hexadecimal after \\x" for index, text in enumerate(texts) if text is not None}
    return _mended(texts, wrong, as_bytes)


def _mended(texts: Texts, wrong: dict[int, str], mend: Callable[[str], str | None]) -> Found:
    """What is spelled unusually is spelled as usual; what cannot be stays wrong."""
    found, left = list(texts), {}
    for index, reason in wrong.items():
        text = mend(str(texts[index]))
        if text is None:
            left[index] = reason
        else:
            found[index] = text
    return found, left


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
