"""What texts mean: two spellings of one value are one key, and compare alike."""

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts

_ALL_DIGITS_CONTEXT = Context(prec=131_072 + 16_383, rounding=ROUND_HALF_UP)  # all digits that a numeric can have
_EARLIEST_TIMESTAMP, _LATEST_TIMESTAMP = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_DROP_UUID_PUNCTUATION = str.maketrans("", "", "{}-")


def make_comparable_parser(field: Field) -> Callable[[str], Any]:
    """From a text that the field's reader has let through to what it means, for comparisons in Python."""
    if field.type in ("integer", "number"):
        return Decimal
    if field.type == "timestamp":
        return _to_comparable_timestamp
    if field.type == "date":
        return _to_comparable_date
    return _to_comparable_time if field.type == "time" else str


def canonicalize_texts(field: Field, texts: ColumnTexts) -> ColumnTexts:
    """Texts that are equal where the server finds the values equal, as far as that is known here."""
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
    """The server takes them with hyphens, braces and capitals, or without: all at once, in one text."""
    together = "\n".join(["" if text is None else text for text in texts])
    spelled = together.translate(_DROP_UUID_PUNCTUATION).lower().split("\n")
    if len(spelled) != len(texts):  # none of these is one
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
    # Not with +: that rounds to the 28 digits of Python's own context. Adding makes -0 a 0.
    return str(_ALL_DIGITS_CONTEXT.add(_ALL_DIGITS_CONTEXT.normalize(number), 0))


def _canonicalize_timestamp(text: str) -> str:
    """As finely as it is written: what a column rounds beyond that is left to the server."""
    return text if (found := _parse_utc_timestamp(text)) is None else found.isoformat()


def _canonicalize_time(text: str) -> str:
    return "24:00:00" if text.startswith("24:") else time.fromisoformat(text).isoformat()


def _to_comparable_date(text: str) -> str:
    """Sorts as days do: ISO 8601, behind it years of more digits, before it those before Christ."""
    if text.endswith("BC"):
        return "-"
    return f":{text:>13}" if text[0].isdigit() and len(text) > len("9999-12-31") else text


def _to_comparable_time(text: str) -> time:
    return time.max if text.startswith("24:") else time.fromisoformat(text)


def _to_comparable_timestamp(text: str) -> datetime:
    """What Python cannot count is at one of its ends."""
    found = _parse_utc_timestamp(text)
    if found is not None:
        return found
    is_early = text.startswith(("-", "0001-01-01")) or text.endswith("BC")
    return _EARLIEST_TIMESTAMP if is_early else _LATEST_TIMESTAMP


def _parse_utc_timestamp(text: str) -> datetime | None:
    """One without a zone is UTC. None for what Python cannot count: also some hours of the years 1 and 9999."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
