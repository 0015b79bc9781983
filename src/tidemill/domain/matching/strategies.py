"""Query variants: the first is what the row says, the next ones are other ways to say it."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

EXACT, NORMALIZED = "exact", "normalized"
WITHOUT_TYPE, WITHOUT_PROPERTIES = "without_type", "without_properties"
COLUMN = "column:"
WORDS = (EXACT, NORMALIZED, WITHOUT_TYPE, WITHOUT_PROPERTIES)
DEFAULT = (EXACT, NORMALIZED, f"{NORMALIZED}+{WITHOUT_TYPE}")
MOST = 8
TEXT_MAX = 1_000  # characters of a query; services look for names

_LEGAL_FORMS = {
    *("ab", "ag", "aps", "as", "asa", "bv", "co", "company", "corp", "corporation", "cv", "doo", "eg", "ev", "gbr"),
    *("gesmbh", "gmbh", "inc", "incorporated", "kft", "kg", "kgaa", "kk", "limited", "llc", "llp", "lp", "ltd", "ltda"),
    *(
        "mbh",
        "nv",
        "ood",
        "oy",
        "oyj",
        "plc",
        "pte",
        "pty",
        "sa",
        "sarl",
        "sas",
        "sasu",
        "se",
        "sl",
        "spa",
        "sro",
        "srl",
    ),
    *("ug", "spzoo"),
}
_DOTTED = re.compile(r"\b(?:\w\.){1,}\w?\b\.?(?!\w)")  # S.A., G.m.b.H
_POSSESSIVE = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
_NO_WORD = re.compile(r"[\W_]+")
# What does not fall apart into a letter and its accent.
_LETTERS = str.maketrans({"ß": "ss", "ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"})


@dataclass(frozen=True, slots=True)
class Query:
    """One question about one row, and the strategy that made it."""

    text: str
    type: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    limit: int = 5
    strategy: str = EXACT


def problem_of(strategy: str) -> str | None:
    """What is wrong with the name of a strategy, such as ``normalized+without_type`` or ``column:alias``."""
    for part in strategy.split("+"):
        if part not in WORDS and not (part.startswith(COLUMN) and len(part) > len(COLUMN)):
            return f"{part!r} is none of {', '.join(WORDS)} or {COLUMN}NAME"
    return None


def queries_of(
    row: Mapping[str, Any],
    *,
    column: str,
    type_: str | None,
    properties: Mapping[str, str],
    limit: int,
    strategies: Sequence[str],
) -> list[Query]:
    """One query for each strategy that has something new to ask; none for a row that has nothing to ask with."""
    found: list[Query] = []
    asked: set[tuple[object, ...]] = set()
    values = tuple((pid, text_of(row.get(name))) for pid, name in properties.items())
    given = tuple((pid, value) for pid, value in values if value)
    for strategy in strategies:
        parts = strategy.split("+")
        where = next((part.removeprefix(COLUMN) for part in parts if part.startswith(COLUMN)), column)
        text = text_of(row.get(where))
        if NORMALIZED in parts:
            text = normalized(text)
        kind = None if WITHOUT_TYPE in parts else type_
        kept = () if WITHOUT_PROPERTIES in parts else given
        if text and (text, kind, kept) not in asked:
            asked.add((text, kind, kept))
            found.append(Query(text, kind, kept, limit, strategy))
    return found


def text_of(value: Any) -> str:
    """A cell as a text to look for; what is nested is nothing to look for."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).replace("\x00", " ").split())[:TEXT_MAX]


def normalized(text: str) -> str:
    """Lower case, without accents, punctuation and the legal forms at its end; a name of nothing else keeps them."""
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_LETTERS))
    plain = "".join(mark for mark in plain if not unicodedata.combining(mark))
    plain = _DOTTED.sub(lambda found: found.group().replace(".", "") + " ", plain)
    words = _NO_WORD.sub(" ", _POSSESSIVE.sub("", plain)).replace("sp z oo", "spzoo").split()
    end = len(words)
    while end and words[end - 1] in _LEGAL_FORMS:
        end -= 1
    return " ".join(words[:end] or words)
