"""What texts mean: two spellings of one value are one key, and compare alike."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from tidemill.domain.resource import Field
from tidemill.domain.values.columns import Texts

_exact = Context(prec=5_000, rounding=ROUND_HALF_UP)
_FRACTION = re.compile(r"\((\d)\)")
_MICROSECONDS = 6
_NO_HYPHENS = str.maketrans("", "", "{}-")


def value_reader(field: Field) -> Callable[[str], Any]:
    """From a text that the field's reader has let through to what it means, for comparisons in Python."""
    if field.type in ("integer", "number"):
        return Decimal
    if field.type == "timestamp":
        return _moment
    return time.fromisoformat if field.type == "time" else str


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
    if field.type in ("timestamp", "time"):
        return _rounded(field)
    return None


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
        return lambda text: str(_exact.normalize(Decimal(text)) + 0)
    unit = Decimal((0, (1,), -(field.scale or 0)))
    return lambda text: str(_exact.normalize(_exact.quantize(Decimal(text), unit)) + 0)


def _rounded(field: Field) -> Callable[[str], str] | None:
    """Moments are told apart as finely as their column keeps them; a rounding one is left to the server."""
    found = _FRACTION.search(field.sql_type)
    if found is not None and int(found[1]) < _MICROSECONDS:
        return None
    read = value_reader(field)
    return lambda text: read(text).isoformat()


def _moment(text: str) -> datetime:
    """One without a zone is UTC. Nothing is beyond the ends."""
    if text.endswith("infinity"):
        return datetime.min.replace(tzinfo=UTC) if text.startswith("-") else datetime.max.replace(tzinfo=UTC)
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
