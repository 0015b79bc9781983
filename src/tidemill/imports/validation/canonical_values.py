"""Canonical and comparable forms of texts, so that two spellings of one value are equal."""

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts

_ALL_DIGITS_CONTEXT = Context(prec=131_072 + 16_383, rounding=ROUND_HALF_UP)  # all digits of a PostgreSQL numeric
_EARLIEST_TIMESTAMP, _LATEST_TIMESTAMP = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_DROP_UUID_PUNCTUATION = str.maketrans("", "", "{}-")


def make_comparable_parser(field: Field) -> Callable[[str], Any]:
    """Return a function that parses a valid text of the field into a value to compare in Python."""
    if field.type in ("integer", "number"):
        return Decimal
    if field.type == "timestamp":
        return _to_comparable_timestamp
    if field.type == "date":
        return _to_comparable_date
    return _to_comparable_time if field.type == "time" else str


def canonicalize_texts(field: Field, texts: ColumnTexts) -> ColumnTexts:
    """Return texts that are equal if the server considers the values equal, for the types that Python knows."""
    if field.type == "uuid":
        return _canonicalize_uuids(texts)
    spell = _choose_canonicalizer(field)
    return texts if spell is None else [None if text is None else spell(text) for text in texts]


def _choose_canonicalizer(field: Field) -> Callable[[str], str] | None:
    named = field.sql_type.rpartition(".")[2].partition("(")[0].strip('"')
    if named in ("character", "bpchar"):
        return lambda text: text.rstrip(" ")
    if named == "citext":
        return str.lower
    if field.type == "integer":
        return lambda text: str(int(text))
    if field.type == "number":
        return _make_number_canonicalizer(field, named)
    if field.type == "timestamp":
        return _canonicalize_timestamp
    return _canonicalize_time if field.type == "time" else None


def _canonicalize_uuids(texts: ColumnTexts) -> ColumnTexts:
    """Remove hyphens, braces and capitals from UUIDs, all in one text for speed."""
    joined = "\n".join(["" if text is None else text for text in texts])
    spelled = joined.translate(_DROP_UUID_PUNCTUATION).lower().split("\n")
    if len(spelled) != len(texts):  # a text with a line break is not a UUID
        return [None if text is None else text.translate(_DROP_UUID_PUNCTUATION).lower() for text in texts]
    if None not in texts:
        return spelled  # type: ignore[return-value]
    return [None if text is None else one for text, one in zip(texts, spelled, strict=True)]


def _make_number_canonicalizer(field: Field, named: str) -> Callable[[str], str]:
    if named in ("real", "double precision"):
        return lambda text: str(float(text) + 0.0)
    if field.precision is None:
        return lambda text: _canonicalize_number(Decimal(text))
    unit = Decimal((0, (1,), -(field.scale or 0)))
    return lambda text: _canonicalize_number(_ALL_DIGITS_CONTEXT.quantize(Decimal(text), unit))


def _canonicalize_number(number: Decimal) -> str:
    # The operator + would round to the 28 digits of Python's default context. Adding 0 turns -0 into 0.
    return str(_ALL_DIGITS_CONTEXT.add(_ALL_DIGITS_CONTEXT.normalize(number), 0))


def _canonicalize_timestamp(text: str) -> str:
    """Keep all digits of the seconds. Only the server knows how a column rounds them."""
    return text if (moment := _parse_utc_timestamp(text)) is None else moment.isoformat()


def _canonicalize_time(text: str) -> str:
    return "24:00:00" if text.startswith("24:") else time.fromisoformat(text).isoformat()


def _to_comparable_date(text: str) -> str:
    """Return a text that sorts by date: BC first, then years of four digits, then longer years."""
    if text.endswith("BC"):
        return "-"
    return f":{text:>13}" if text[0].isdigit() and len(text) > len("9999-12-31") else text


def _to_comparable_time(text: str) -> time:
    return time.max if text.startswith("24:") else time.fromisoformat(text)


def _to_comparable_timestamp(text: str) -> datetime:
    """Return the time in UTC. Times outside Python's range become the earliest or the latest one."""
    moment = _parse_utc_timestamp(text)
    if moment is not None:
        return moment
    is_early = text.startswith(("-", "0001-01-01")) or text.endswith("BC")
    return _EARLIEST_TIMESTAMP if is_early else _LATEST_TIMESTAMP


def _parse_utc_timestamp(text: str) -> datetime | None:
    """Return the time in UTC, which is the default zone. None outside Python's range, which ends within 1 and 9999."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
