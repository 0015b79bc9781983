"""The requests of match and enrich jobs: what each row sends to a service, and what it takes from the response."""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import quote, unquote

from tidemill.core.json_input import JsonObject

TEMPLATE_MAX_DEPTH = 16
URL_VALUE_MAX_CHARS = 2_000
_PLACEHOLDER_PATTERN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


class EmptyTemplateValue(Exception):
    """A row has no value in a ``column`` that the template needs."""

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class PathTraversal(Exception):
    """A value adds a ``.`` or ``..`` segment to a path."""


def has_path_traversal(path: str) -> bool:
    """Return whether the path contains a ``.`` or ``..`` segment, also after repeated decoding."""
    while (plain := unquote(path)) != path:
        path = plain
    return any(part.partition(";")[0] in (".", "..") for part in re.split(r"[/\\?]", path))


def find_template_problem(template: str) -> str | None:
    """Return why a template is invalid, or None. ``{{`` and ``}}`` are literal braces."""
    for placeholder in _PLACEHOLDER_PATTERN.finditer(template):
        if placeholder.group() in ("{", "}"):
            return f'"{placeholder.group()}" has no matching brace; write {{{{ and }}}} for literal braces'
        if placeholder[1] is not None and not placeholder[1].strip():
            return "{} contains no column name"
    return None


def list_template_columns(template: Any) -> Iterator[str]:
    """Yield the columns that the placeholders in a string or a JSON value refer to."""
    if isinstance(template, str):
        yield from (found[1] for found in _PLACEHOLDER_PATTERN.finditer(template) if found[1] is not None)
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from list_template_columns(value)
    elif isinstance(template, list):
        for value in template:
            yield from list_template_columns(value)


def list_template_problems(template: Any, depth: int = 0) -> Iterator[str]:
    """Yield the problems of all strings in a JSON value, as ``find_template_problem`` does for one."""
    if depth > TEMPLATE_MAX_DEPTH:
        yield f"nested more than {TEMPLATE_MAX_DEPTH} levels deep"
    elif isinstance(template, str):
        problem = find_template_problem(template)
        if problem:
            yield problem
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from list_template_problems(value, depth + 1)
    elif isinstance(template, list):
        for value in template:
            yield from list_template_problems(value, depth + 1)


def fill_path_template(template: str, row: Mapping[str, Any]) -> str:
    """Return the path and query with the values of a row, escaped so that a value cannot end its segment.

    Raise EmptyTemplateValue for an empty value, and PathTraversal for a value that adds ``.`` or ``..`` segments.
    """

    def replace_placeholder(found: "re.Match[str]") -> str:
        if found[1] is None:
            return quote(found.group()[0], safe="")
        text = _format_row_value(row, found[1])
        if not text or text in (".", ".."):
            raise EmptyTemplateValue(found[1])
        return quote(text[:URL_VALUE_MAX_CHARS], safe="", errors="replace")

    path = _PLACEHOLDER_PATTERN.sub(replace_placeholder, template)
    if has_path_traversal(path.partition("?")[0]):
        raise PathTraversal
    return path


def fill_json_template(template: Any, row: Mapping[str, Any]) -> Any:
    """Return the JSON with the values of a row. A string that is only a placeholder becomes the value itself."""
    if isinstance(template, str):
        whole = _PLACEHOLDER_PATTERN.fullmatch(template)
        if whole is not None and whole[1] is not None:
            return row.get(whole[1])
        return _PLACEHOLDER_PATTERN.sub(
            lambda found: found.group()[0] if found[1] is None else _format_row_value(row, found[1]), template
        )
    if isinstance(template, Mapping):
        return {name: fill_json_template(value, row) for name, value in template.items()}
    if isinstance(template, list):
        return [fill_json_template(value, row) for value in template]
    return template


def _format_row_value(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip() if isinstance(value, str | int | float) else ""


JSON_PATH_MAX_CHARS, JSON_PATH_MAX_STEPS, JSON_PATH_MAX_MATCHES = 500, 32, 1_000
WILDCARD_STEP: Final[None] = None
_STEP_PATTERN = re.compile(
    r"""\.(?P<name>[A-Za-z_\u0080-\U0010ffff][\w\u0080-\U0010ffff-]*)
    |\[(?P<place>-?(?:0|[1-9][0-9]{0,8}))\]
    |\['(?P<single>(?:[^'\\]|\\['\\])*)'\]
    |\["(?P<double>(?:[^"\\]|\\["\\])*)"\]
    |(?P<all>\[\*\]|\.\*)""",
    re.VERBOSE,
)
_ESCAPE_PATTERN = re.compile(r"\\(.)")
_MISSING: Final = object()


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A parsed path; ``steps`` are names, indexes or ``WILDCARD_STEP``."""

    steps: tuple[str | int | None, ...]

    @classmethod
    def parse(cls, text: str) -> "JsonPath":
        """Return the parsed path. Raise ValueError if a part is not supported."""
        if not text.startswith("$"):
            raise ValueError(f'path "{text[:50]}" must start with $, such as $.offers[0].price')
        if len(text) > JSON_PATH_MAX_CHARS:
            raise ValueError(f"path must have at most {JSON_PATH_MAX_CHARS} characters")
        steps: list[str | int | None] = []
        at = 1
        while at < len(text):
            found = _STEP_PATTERN.match(text, at)
            if found is None:
                raise ValueError(
                    f'unsupported step "{text[at : at + 20]}" in path "{text[:50]}"; use .name, [\'name\'], [0] or [*]'
                )
            steps.append(_parse_step(found))
            at = found.end()
        if len(steps) > JSON_PATH_MAX_STEPS:
            raise ValueError(f"path must have at most {JSON_PATH_MAX_STEPS} steps")
        return cls(tuple(steps))

    def find(self, document: Any) -> Any:
        """Return the value at the path, or None. With a wildcard, return the list of all values."""
        values = [document]
        for step in self.steps:
            values = [inner for value in values for inner in _apply_step(value, step)][:JSON_PATH_MAX_MATCHES]
        if WILDCARD_STEP in self.steps:
            return values
        return values[0] if values else None


def _parse_step(found: "re.Match[str]") -> str | int | None:
    if found["all"]:
        return WILDCARD_STEP
    if found["place"]:
        return int(found["place"])
    if found["name"]:
        return found["name"]
    quoted = found["single"] if found["single"] is not None else found["double"]
    return _ESCAPE_PATTERN.sub(r"\1", quoted)


def _apply_step(value: Any, step: str | int | None) -> list[Any]:
    if step is WILDCARD_STEP:
        return value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else []
    if isinstance(step, int):
        inside = isinstance(value, list) and -len(value) <= step < len(value)
        return [value[step]] if inside else []
    found = value.get(step, _MISSING) if isinstance(value, dict) else _MISSING
    return [] if found is _MISSING else [found]


@dataclass(frozen=True, kw_only=True)
class EnrichRequest:
    """``path`` is relative to the service's URL; ``fields`` maps names to JSON paths in the response."""

    service: str
    path: str
    method: str = "GET"
    body: Any = None
    headers: Mapping[str, str]
    fields: Mapping[str, str]
    required: tuple[str, ...] = ()

    @classmethod
    def from_params(cls, params: Mapping[str, Any]) -> "EnrichRequest":
        """Return the request. Raise InvalidRequest with all problems."""
        # Only processes that call services need the pydantic models.
        from tidemill.enrichment.job_params import EnrichParams, validate_params  # noqa: PLC0415

        given = validate_params(EnrichParams, params)
        given.setdefault("headers", {})
        return cls(**given)

    @property
    def params(self) -> dict[str, Any]:
        """The parameters as the job stores them, including the defaults."""
        return asdict(self) | {"required": list(self.required)}

    @property
    def referenced_columns(self) -> list[str]:
        """The columns that path and body refer to."""
        return list(dict.fromkeys([*list_template_columns(self.path), *list_template_columns(self.body)]))

    @cached_property
    def _field_paths(self) -> dict[str, JsonPath]:
        return {name: JsonPath.parse(text) for name, text in self.fields.items()}

    def extract_result(self, document: Any) -> JsonObject:
        return {name: path.find(document) for name, path in self._field_paths.items()}

    def list_missing_required_fields(self, result: Mapping[str, Any]) -> list[str]:
        return [name for name in self.required if result[name] in (None, [], "")]


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
