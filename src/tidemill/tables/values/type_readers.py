"""Reads texts as values of PostgreSQL types, including arrays, and reports invalid texts."""

import base64
import binascii
import json
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import MAXYEAR, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import (
    ColumnTexts,
    ParsedColumn,
    find_indexes_not_matching,
    is_storable_text,
    normalize_mismatches,
)
from tidemill.tables.values.json_values import encode_json, normalize_json_column
from tidemill.tables.values.number_values import normalize_integer_column, normalize_number_column

_UUID_PATTERN = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_DATE_PATTERN = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME_PATTERN = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_ZONE_PATTERN = r"(?:Z|[+-](?:0[0-9]|1[0-5])(?::?[0-5][0-9])?)"  # PostgreSQL offsets are below 16 hours
_ZONE_OFFSET_MAX = timedelta(hours=16)
INFINITE_DATE_TEXTS = ("infinity", "-infinity")
_TIMESTAMP_PATTERN = rf"{_DATE_PATTERN}[T ]{_TIME_PATTERN}"
_TRUE_TEXTS, _FALSE_TEXTS = ("true", "t", "yes", "y", "on", "1"), ("false", "f", "no", "n", "off", "0")
_BOOLEAN_TEXTS = dict.fromkeys(_TRUE_TEXTS, "t") | dict.fromkeys(_FALSE_TEXTS, "f")
_match_bare_uuid = re.compile(r"[{]?([0-9a-fA-F]{32})[}]?").fullmatch
_match_timestamp = re.compile(rf"({_TIMESTAMP_PATTERN})({_ZONE_PATTERN})?").fullmatch
_match_time = re.compile(rf"([0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]+)?)?)(?:{_ZONE_PATTERN})?").fullmatch
_match_distant_date = re.compile(
    rf"([0-9]{{4,7}}-[0-9]{{2}}-[0-9]{{2}})(?:[T ]({_TIME_PATTERN})({_ZONE_PATTERN})?)?( BC)?"
).fullmatch
_END_OF_DAY_TEXTS = ("24:00", "24:00:00")
_MAX_YEAR_BY_TYPE = {"date": 5_874_897, "timestamp": 294_275}  # the last complete year in every time zone
_MAX_YEAR_BC = 4_713


def normalize_text_column(_: Field, texts: ColumnTexts) -> ParsedColumn:
    return texts, {}


def normalize_boolean_column(_: Field, texts: ColumnTexts) -> ParsedColumn:
    found: ColumnTexts = list(map(_BOOLEAN_TEXTS.get, texts))  # type: ignore[arg-type]
    wrong = {}
    if None in found:
        for index, text in enumerate(texts):
            if found[index] is None and text is not None:
                found[index] = _BOOLEAN_TEXTS.get(text.lower())
                if found[index] is None:
                    wrong[index] = "must be true or false"
    return found, wrong


def normalize_uuid_column(_: Field, texts: ColumnTexts) -> ParsedColumn:
    wrong = dict.fromkeys(find_indexes_not_matching(_UUID_PATTERN, texts), "must be a UUID")
    return normalize_mismatches(texts, wrong, _canonicalize_uuid)


def _canonicalize_uuid(text: str) -> str | None:
    found = _match_bare_uuid(text.replace("-", ""))
    return None if found is None else str(UUID(found[1]))


def normalize_date_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    return _normalize_temporal_column(
        field, texts, _DATE_PATTERN, date.fromisoformat, _normalize_date, "must be a date such as 2026-11-15"
    )


def normalize_time_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    return _normalize_temporal_column(
        field, texts, _TIME_PATTERN, time.fromisoformat, _normalize_time, "must be a time such as 13:45:00"
    )


def normalize_timestamp_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    shape = _TIMESTAMP_PATTERN + (_ZONE_PATTERN if field.with_zone else "")
    normalize = _normalize_timestamp if field.with_zone else _normalize_local_timestamp
    return _normalize_temporal_column(
        field, texts, shape, datetime.fromisoformat, normalize, "must be a timestamp such as 2026-11-15T13:45:00Z"
    )


def _normalize_temporal_column(
    field: Field,
    texts: ColumnTexts,
    shape: str,
    parse: Callable[[str], Any],
    normalize: Callable[..., str | None],
    reason: str,
) -> ParsedColumn:
    """Keep valid ISO 8601 texts unchanged, and normalize other notations one by one."""
    odd = set(find_indexes_not_matching(shape, texts))
    if not odd and _can_parse_all(parse, texts):
        return texts, {}
    found, wrong = list(texts), {}
    for index, text in enumerate(texts):
        if text is not None and (index in odd or not _can_parse_all(parse, [text])):
            found[index] = (
                _normalize_infinity(field, text)
                or _normalize_value_beyond_python(field, text)
                or normalize(text, field.formats)
            )
            if found[index] is None:
                wrong[index] = (
                    reason if not field.formats else f"{reason}, or have the format {' or '.join(field.formats)}"
                )
    return found, wrong


def _normalize_infinity(field: Field, text: str) -> str | None:
    """Return infinity or -infinity, which PostgreSQL accepts as dates and timestamps; None for other texts."""
    return text.lower() if field.type != "time" and text.lower() in INFINITE_DATE_TEXTS else None


def _normalize_value_beyond_python(field: Field, text: str) -> str | None:
    """Read values that PostgreSQL supports and Python does not: years before 1 and after 9999, and 24:00."""
    if field.type == "time":
        return text if text in _END_OF_DAY_TEXTS else None
    found = _match_distant_date(text)
    if found is None:
        return None
    day, hour, zone, era = found.groups(default="")
    if not _is_valid_distant_day(day, era, _MAX_YEAR_BY_TYPE[field.type]) or not _can_parse_all(
        time.fromisoformat, [hour]
    ):
        return None
    if field.type == "date":
        return None if hour else day + era
    return f"{day}T{hour or '00:00:00'}{(zone or '+00:00') if field.with_zone else ''}{era}"


def _is_valid_distant_day(day: str, era: str, last: int) -> bool:
    """Return whether a day exists. The calendar repeats every 400 years, and 1 BC counts as the year 0."""
    year, month, number = map(int, day.split("-"))
    same = 2000 + (1 - year if era else year) % 400
    is_within = 1 <= year <= _MAX_YEAR_BC if era else MAXYEAR < year <= last
    return is_within and _can_parse_all(date.fromisoformat, [f"{same}-{month:02}-{number:02}"])


def _can_parse_all(parse: Callable[[str], Any], texts: ColumnTexts) -> bool:
    try:
        deque(map(parse, filter(None, texts)), maxlen=0)
    except ValueError:
        return False
    return True


def _parse_date_with_formats(text: str, formats: Sequence[str]) -> datetime | None:
    for pattern in formats:
        try:
            return datetime.strptime(text, pattern)  # noqa: DTZ007  the format can include a time zone
        except ValueError:
            continue
    return None


def _parse_iso(text: str) -> datetime | None:
    found = _match_timestamp(text) or _match_timestamp(text + "T00:00:00")
    if found is None:
        return None
    try:
        return datetime.fromisoformat(found[0])
    except ValueError:
        return None


def _normalize_date(text: str, formats: Sequence[str]) -> str | None:
    found = _parse_date_with_formats(text, formats) or _parse_iso(text)
    return None if found is None else found.date().isoformat()


def _normalize_time(text: str, formats: Sequence[str]) -> str | None:
    found = _parse_date_with_formats(text, formats)
    if found is not None:
        return found.time().isoformat()
    shaped = _match_time(text)  # Python also parses 20261115 as a time
    try:
        return shaped[1] if shaped and time.fromisoformat(shaped[1]) is not None else None
    except ValueError:
        return None


def _normalize_timestamp(text: str, formats: Sequence[str]) -> str | None:
    """Return a timestamp with its offset; without one, UTC, so that the server's time zone does not matter."""
    found = _parse_date_with_formats(text, formats) or _parse_iso(text)
    if found is None:
        return None
    offset = found.utcoffset()
    if offset is None:
        return found.isoformat() + "+00:00"
    return found.isoformat() if abs(offset) < _ZONE_OFFSET_MAX and not offset.microseconds else None


def _normalize_local_timestamp(text: str, formats: Sequence[str]) -> str | None:
    found = _parse_date_with_formats(text, formats) or _parse_iso(text)
    return None if found is None else found.replace(tzinfo=None).isoformat()


def normalize_bytes_column(_: Field, texts: ColumnTexts) -> ParsedColumn:
    def as_bytes(text: str) -> str | None:
        try:
            data = bytes.fromhex(text[2:]) if text.startswith("\\x") else base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            return None
        return "\\x" + data.hex()

    wrong = {
        index: "must be base64, or hexadecimal with the prefix \\x"
        for index, text in enumerate(texts)
        if text is not None
    }
    return normalize_mismatches(texts, wrong, as_bytes)


TYPE_READERS: dict[str, Callable[[Field, ColumnTexts], ParsedColumn]] = {
    "text": normalize_text_column,
    "integer": normalize_integer_column,
    "number": normalize_number_column,
    "boolean": normalize_boolean_column,
    "date": normalize_date_column,
    "time": normalize_time_column,
    "timestamp": normalize_timestamp_column,
    "uuid": normalize_uuid_column,
    "json": normalize_json_column,
    "bytes": normalize_bytes_column,
    "other": normalize_text_column,
}


_match_array_literal = re.compile(r"(?:(?:\[[+-]?\d+:[+-]?\d+\])+=)?\{.*\}", re.DOTALL).fullmatch


def normalize_array_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    """Read arrays. Equal texts, such as repeated tags, are parsed once."""
    element = replace(field, type=field.element or "text", element=None)
    literals: dict[str | None, str | None] = {None: None}
    reasons: dict[str | None, str] = {}
    for text in set(texts):
        if text is None:
            continue
        try:
            literals[text] = (
                text
                if _is_array_literal(text)
                else _format_array_literal(element, json.loads(text, parse_float=_parse_decimal))
            )
        except (ValueError, RecursionError) as error:
            literals[text] = text
            reasons[text] = (
                f"must be a valid list: {error}" if text.startswith("[") else 'must be a list such as ["a", "b"]'
            )
    wrong = {index: reasons[text] for index, text in enumerate(texts) if text in reasons} if reasons else {}
    return [literals[text] for text in texts], wrong


def _parse_decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise ValueError("it contains a number with too many digits") from None


def _is_array_literal(text: str) -> bool:
    """Return whether a text is an array literal of PostgreSQL, with or without explicit bounds."""
    return bool(_match_array_literal(text.strip()))


def _format_array_literal(element: Field, value: Any) -> str:
    """Return a list as an array literal. Nested lists are dimensions."""
    if not isinstance(value, list):
        raise ValueError("it contains both lists and other values")  # noqa: TRY004  an error in the file
    if any(isinstance(part, list) for part in value):
        return "{" + ",".join(_format_array_literal(element, part) for part in value) + "}"
    texts: ColumnTexts = [_format_element_text(part) for part in value]
    texts, wrong = TYPE_READERS[element.type](element, texts)
    if wrong:
        part = value[min(wrong)]
        raise ValueError(f"{part if isinstance(part, Decimal) else repr(part)} {wrong[min(wrong)]}")
    if any(text is not None and not is_storable_text(text) for text in texts):
        raise ValueError("it contains a character that PostgreSQL cannot store")
    return "{" + ",".join("NULL" if text is None else _quote_element(text) for text in texts) + "}"


def _format_element_text(part: Any) -> str | None:
    if part is None or isinstance(part, str):
        return part
    if isinstance(part, bool):
        return "true" if part else "false"
    return encode_json(part)


def _quote_element(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
