"""Rules of repairs: each computes new values of a failed row from the values that it has."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tidemill.core.errors import InvalidInput, TooLarge
from tidemill.core.json_input import JsonObject
from tidemill.core.list_pages import check_storable_text
from tidemill.tables.values.value_formats import get_value_format

RULE_TEXT_MAX_CHARS = 10_000
RULE_SEARCH_MAX_CHARS = 1_000
TRANSLATED_VALUES_MAX = 1_000
SearchText = Annotated[str, Meta(max_length=RULE_SEARCH_MAX_CHARS)]
NewText = Annotated[str, Meta(max_length=RULE_TEXT_MAX_CHARS)]


class Replace(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="replace"):
    """Replaces each occurrence of a text in the value or, with ``whole``, a value that is this text."""

    find: SearchText
    replacement: NewText = ""
    whole: bool = False


class Translate(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="translate"):
    """Replaces each value that is in the map. Blanks around a value do not matter."""

    values: Annotated[dict[SearchText, NewText | None], Meta(min_length=1, max_length=TRANSLATED_VALUES_MAX)]


class Split(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="split"):
    """Splits the value at the first separator into two columns."""

    separator: Annotated[str, Meta(min_length=1, max_length=RULE_SEARCH_MAX_CHARS)]
    into: tuple[str, str]


class Reformat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="format"):
    """Reads the value in a named format, and writes it in plain notation: 2026-11-15, or 1234.56."""

    format: SearchText


class SetDefault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="default"):
    """Sets a value where the value is empty or invalid."""

    value: NewText | int | float | bool | None


class Drop(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="drop"):
    """Dismisses the rows instead of fixing them."""


RepairRule = Replace | Translate | Split | Reformat | SetDefault | Drop


def parse_repair_rule(given: Mapping[str, Any]) -> RepairRule:
    """Return the rule; raise InvalidInput if it is invalid."""
    try:
        rule: RepairRule = msgspec.convert(dict(given), RepairRule)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"Invalid rule: {error}") from error
    if isinstance(rule, Replace) and not rule.find and not rule.whole:
        raise InvalidInput('Invalid rule: "find" must not be empty. To replace empty values, set "whole".')
    if isinstance(rule, SetDefault) and isinstance(rule.value, float) and not math.isfinite(rule.value):
        raise InvalidInput('Invalid rule: "value" is not a valid JSON number')
    if isinstance(rule, Split) and rule.into[0] == rule.into[1]:
        raise InvalidInput('Invalid rule: "into" must name two different columns')
    if isinstance(rule, Reformat):
        get_value_format(rule.format)  # raises if it is unknown
    _check_storable_texts(msgspec.to_builtins(rule))
    return rule


def _check_storable_texts(value: Any) -> None:
    if isinstance(value, str):
        check_storable_text("The rule", value)
    elif isinstance(value, Mapping):
        for pair in value.items():
            _check_storable_texts(pair)
    elif isinstance(value, list | tuple):
        for part in value:
            _check_storable_texts(part)


def compute_new_values(
    rule: RepairRule, row: Mapping[str, Any], column: str, *, is_invalid: bool, max_chars: int
) -> JsonObject:
    """Return the values that a rule changes, by column; an empty dict if it changes nothing.

    Args:
        rule: The rule.
        row: The values of the row.
        column: The column that the rule reads.
        is_invalid: Whether the row has an error in this column.
        max_chars: The size limit of a row.

    Raises:
        TooLarge: A new value would be longer than ``max_chars``.
    """
    if isinstance(rule, SetDefault):
        return _keep_changes(row, {column: rule.value} if is_invalid or _is_blank(row.get(column)) else {})
    text = _to_text(row.get(column))
    if text is None:
        return {}
    match rule:
        case Replace():
            return _keep_changes(row, _replace(rule, text, column, max_chars))
        case Translate():
            found = text if text in rule.values else text.strip()
            return _keep_changes(row, {column: rule.values[found]} if found in rule.values else {})
        case Split():
            first, separator, second = text.partition(rule.separator)
            parts = (first.strip(), second.strip())
            return _keep_changes(row, dict(zip(rule.into, parts, strict=True)) if separator else {})
        case Reformat():
            texts, invalid = get_value_format(rule.format).convert_column([text.strip()])
            return _keep_changes(row, {} if invalid else {column: texts[0]})
        case Drop():
            return {}


def _replace(rule: Replace, text: str, column: str, max_chars: int) -> JsonObject:
    if rule.whole:
        return {column: rule.replacement} if text == rule.find else {}
    growth = text.count(rule.find) * (len(rule.replacement) - len(rule.find))
    if len(text) + growth > max_chars:  # not computed: a short rule could allocate gigabytes
        raise TooLarge(f"The new value would have {len(text) + growth:,} characters. The maximum is {max_chars:,}.")
    return {column: text.replace(rule.find, rule.replacement)}


def _keep_changes(row: Mapping[str, Any], values: JsonObject) -> JsonObject:
    return {name: value for name, value in values.items() if name not in row or row[name] != value}


def _to_text(value: Any) -> str | None:
    """Return a value as the text of a cell; None for a list or an object."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float | Decimal) else None


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())
