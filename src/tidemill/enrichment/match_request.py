"""The request of a match job, and the queries that each of its rows sends to a reconciliation service."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

STRATEGY_EXACT, STRATEGY_NORMALIZED = "exact", "normalized"
STRATEGY_WITHOUT_TYPE, STRATEGY_WITHOUT_PROPERTIES = "without_type", "without_properties"
STRATEGY_COLUMN_PREFIX = "column:"
STRATEGY_NAMES = (STRATEGY_EXACT, STRATEGY_NORMALIZED, STRATEGY_WITHOUT_TYPE, STRATEGY_WITHOUT_PROPERTIES)
DEFAULT_STRATEGIES = (STRATEGY_EXACT, STRATEGY_NORMALIZED, f"{STRATEGY_NORMALIZED}+{STRATEGY_WITHOUT_TYPE}")
STRATEGIES_MAX = 8
QUERY_TEXT_MAX_CHARS = 1_000  # services search for names, which are shorter

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
_DOTTED_ABBREVIATION_PATTERN = re.compile(r"\b(?:\w\.){1,}\w?\b\.?(?!\w)")  # S.A., G.m.b.H
_APOSTROPHE_PATTERN = re.compile(r"(?<=\w)['\u2019\u02bc](?=\w)")
_NON_WORD_PATTERN = re.compile(r"[\W_]+")
# Letters that do not decompose into a letter and an accent.
_LETTER_REPLACEMENTS = str.maketrans(
    {"ß": "ss", "ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ð": "d", "þ": "th"}
)


@dataclass(frozen=True, slots=True)
class MatchQuery:
    """A query for one row, and the strategy that built it."""

    text: str
    type: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    limit: int = 5
    strategy: str = STRATEGY_EXACT


def find_strategy_problem(strategy: str) -> str | None:
    """Return why a strategy such as ``normalized+without_type`` or ``column:alias`` is invalid, or None."""
    for part in strategy.split("+"):
        if part not in STRATEGY_NAMES and not (
            part.startswith(STRATEGY_COLUMN_PREFIX) and len(part) > len(STRATEGY_COLUMN_PREFIX)
        ):
            choices = ", ".join(f'"{name}"' for name in STRATEGY_NAMES)
            return f'must be one of {choices} or "{STRATEGY_COLUMN_PREFIX}NAME", not "{part}"'
    return None


def build_match_queries(
    row: Mapping[str, Any],
    *,
    column: str,
    type_: str | None,
    properties: Mapping[str, str],
    limit: int,
    strategies: Sequence[str],
) -> list[MatchQuery]:
    """Return one query per strategy, without duplicates. The list is empty if the row has no text to search for."""
    queries: list[MatchQuery] = []
    built: set[tuple[object, ...]] = set()
    values = tuple((pid, format_cell_as_query_text(row.get(name))) for pid, name in properties.items())
    given = tuple((pid, value) for pid, value in values if value)
    for strategy in strategies:
        parts = strategy.split("+")
        query_column = next(
            (part.removeprefix(STRATEGY_COLUMN_PREFIX) for part in parts if part.startswith(STRATEGY_COLUMN_PREFIX)),
            column,
        )
        text = format_cell_as_query_text(row.get(query_column))
        if STRATEGY_NORMALIZED in parts:
            text = normalize_entity_name(text)
        kind = None if STRATEGY_WITHOUT_TYPE in parts else type_
        kept = () if STRATEGY_WITHOUT_PROPERTIES in parts else given
        if text and (text, kind, kept) not in built:
            built.add((text, kind, kept))
            queries.append(MatchQuery(text, kind, kept, limit, strategy))
    return queries


def format_cell_as_query_text(value: Any) -> str:
    """Return the text to search for. It is empty for booleans, nulls and nested values."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return ""
    return " ".join(str(value).replace("\x00", " ").split())[:QUERY_TEXT_MAX_CHARS]


def normalize_entity_name(text: str) -> str:
    """Return the name in lower case, without accents, punctuation and trailing legal forms.

    A name that consists only of legal forms keeps them.
    """
    plain = unicodedata.normalize("NFKD", text.casefold().translate(_LETTER_REPLACEMENTS))
    plain = "".join(mark for mark in plain if not unicodedata.combining(mark))
    plain = _DOTTED_ABBREVIATION_PATTERN.sub(lambda found: found.group().replace(".", "") + " ", plain)
    words = _NON_WORD_PATTERN.sub(" ", _APOSTROPHE_PATTERN.sub("", plain)).replace("sp z oo", "spzoo").split()
    end = len(words)
    while end and words[end - 1] in _LEGAL_FORMS:
        end -= 1
    return " ".join(words[:end] or words)


MATCH_LIMIT_MAX, MATCH_PROPERTIES_MAX, NOT_FOUND_DELAY_MAX_S = 50, 20, 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchRequest:
    """``query`` and the values of ``properties`` are column names.

    A candidate that the service marks as a match is accepted if ``accept_match`` is true, which is the default without
    a ``threshold``.
    """

    service: str
    query: str
    type: str | None = None
    properties: Mapping[str, str]
    limit: int = 5
    threshold: float | None = None
    accept_match: bool = True
    strategies: tuple[str, ...] = DEFAULT_STRATEGIES
    not_found_delay: float = 2.0

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "MatchRequest":
        """Return the request. Raise InvalidRequest with all problems."""
        # Only processes that call services need the pydantic models.
        from tidemill.enrichment.job_params import MatchParams, validate_params  # noqa: PLC0415

        given = validate_params(MatchParams, params)
        given.setdefault("properties", {})
        given.setdefault("accept_match", given.get("threshold") is None)
        return cls(**given)

    @property
    def params(self) -> dict[str, object]:
        """The parameters as the job stores them, including the defaults."""
        return asdict(self) | {"strategies": list(self.strategies)}

    def build_queries(self, row: Mapping[str, Any]) -> list[MatchQuery]:
        return build_match_queries(
            row,
            column=self.query,
            type_=self.type,
            properties=self.properties,
            limit=self.limit,
            strategies=self.strategies,
        )


MATCH_COLUMNS = ("id", "name", "score", "match", "type", "query", "strategy", "candidates")
