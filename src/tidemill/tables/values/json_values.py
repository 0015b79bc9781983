"""JSON, as far as PostgreSQL takes it: Python and the server do not agree on all of it."""

import json
import re
from decimal import Decimal
from typing import Any
from uuid import uuid4

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts, ParsedColumn
from tidemill.tables.values.number_values import exceeds_numeric_digits

_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_DECIMAL_MARK = uuid4().hex  # nobody can know it, so no text of a file has it
_MARKED_DECIMAL = re.compile(f'"{_DECIMAL_MARK}([^"]+)"')
_LONG_EXPONENT_CHARS = 5  # characters of an exponent: only then may a number be out of range


def encode_json(value: Any) -> str:
    """A decoded value as JSON again, its fractions with all the digits that they came with."""
    text = _dumps(value)
    return _MARKED_DECIMAL.sub(r"\1", text) if _DECIMAL_MARK in text else text


def _mark_decimal(value: Any) -> str:
    """The encoder has no word for a number of many digits: it is written as text, and its quotes are taken away."""
    if not isinstance(value, Decimal):
        raise TypeError(f"{type(value).__name__} is not JSON")
    return f"{_DECIMAL_MARK}{value}"


_dumps = json.JSONEncoder(ensure_ascii=False, default=_mark_decimal).encode


def parse_json_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    wrong = {}
    for index, text in enumerate(texts):
        if text is not None:
            reason = _find_json_problem(text, is_parsed=field.sql_type != "json")
            if reason is not None:
                wrong[index] = reason
    return texts, wrong


def _find_json_problem(text: str, *, is_parsed: bool) -> str | None:
    """``is_parsed``: jsonb keeps what a document means, json its text."""
    try:
        value = _loads(text)
    except (ValueError, RecursionError):
        return "not JSON"
    if not is_parsed:
        return None
    if _ESCAPED_NUL.search(text):
        return "JSON with a NUL character, which cannot be stored"
    if "\\u" in text and not _has_no_lone_surrogates(value):
        return "JSON with half a pair of surrogates, which cannot be stored"
    return None


def _has_no_lone_surrogates(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _check_float_digits(text: str) -> float:
    exponent = text.lower().partition("e")[2]
    if (len(exponent) >= _LONG_EXPONENT_CHARS or len(text) > 1_000) and exceeds_numeric_digits(text):  # noqa: PLR2004
        raise ValueError("a number with too many digits")
    return 0.0


_loads = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_check_float_digits).decode
