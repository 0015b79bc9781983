"""What texts mean: two spellings of one value are one key, and compare alike."""

from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Texts

_exact = Context(prec=131_072 + 16_383, rounding=ROUND_HALF_UP)  # all digits that a numeric can have
_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_NO_HYPHENS = str.maketrans("", "", "{}-")


def value_reader(field: Field) -> Callable[[str], Any]:
    """From a text that the field's reader has let through to what it means, for comparisons in Python."""
    if field.type in ("integer", "number"):
        return Decimal
    if field.type == "timestamp":
        return _moment
    if field.type == "date":
        return _day
    return _hour if field.type == "time" else str


def same_texts(field: Field, texts: Texts) -> Texts:
    """Texts that are equal where the server finds the values equal, as far as that is known here."""
    if field.type == "uuid":
        return _uuids(texts)
    spell = _speller(field)
    return texts if spell is None else [None if text is None else spell(text) for text in texts]


def _speller(field: Field) -> Callable[[str], str] | None:
    named = field.sql_type.rpartition(".")[2].partition("(")[0].strip('"')
    if named in ("character", "bpchar"):
        return lambda text: text.rstrip(" ")
    if named == "citext":
        return str.lower
    if field.type == "integer":
        return lambda text: str(int(text))
    if field.type == "number":
        return _number(field, named)
    if field.type == "timestamp":
        return _spelled_moment
    return _spelled_hour if field.type == "time" else None


def _uuids(texts: Texts) -> Texts:
    """The server takes them with hyphens, braces and capitals, or without: all at once, in one text."""
    together = "\n".join(["" if text is None else text for text in texts])
    spelled = together.translate(_NO_HYPHENS).lower().split("\n")
    if len(spelled) != len(texts):  # none of these is one
        return [None if text is None else text.translate(_NO_HYPHENS).lower() for text in texts]
    if None not in texts:
        return spelled  # type: ignore[return-value]
    return [None if text is None else one for text, one in zip(texts, spelled, strict=True)]


def _number(field: Field, named: str) -> Callable[[str], str]:
    if named in ("real", "double precision"):
        return lambda text: str(float(text) + 0.0)
    if field.precision is None:
        return lambda text: _spelled_number(Decimal(text))
    unit = Decimal((0, (1,), -(field.scale or 0)))
    return lambda text: _spelled_number(_exact.quantize(Decimal(text), unit))


def _spelled_number(number: Decimal) -> str:
    # Not with +: that rounds to the 28 digits of Python's own context. Adding makes -0 a 0.
    return str(_exact.add(_exact.normalize(number), 0))


def _spelled_moment(text: str) -> str:
    """As finely as it is written: what a column rounds beyond that is left to the server."""
    return text if (found := _in_utc(text)) is None else found.isoformat()


def _spelled_hour(text: str) -> str:
    return "24:00:00" if text.startswith("24:") else time.fromisoformat(text).isoformat()


def _day(text: str) -> str:
    """Sorts as days do: ISO 8601, behind it years of more digits, before it those before Christ."""
    if text.endswith("BC"):
        return "-"
    return f":{text:>13}" if text[0].isdigit() and len(text) > len("9999-12-31") else text


def _hour(text: str) -> time:
    return time.max if text.startswith("24:") else time.fromisoformat(text)


def _moment(text: str) -> datetime:
    """What Python cannot count is at one of its ends."""
    found = _in_utc(text)
    if found is not None:
        return found
    is_early = text.startswith(("-", "0001-01-01")) or text.endswith("BC")
    return _EARLIEST if is_early else _LATEST


def _in_utc(text: str) -> datetime | None:
    """One without a zone is UTC. None for what Python cannot count: also some hours of the years 1 and 9999."""
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
