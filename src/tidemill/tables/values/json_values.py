"""Validates JSON as PostgreSQL does, which differs from Python in some cases."""

import json
import re
from decimal import Decimal
from typing import Any
from uuid import uuid4

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import ColumnTexts, ParsedColumn
from tidemill.tables.values.number_values import exceeds_numeric_digits

_ESCAPED_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_DECIMAL_MARK = uuid4().hex  # random, so that no file contains it
_MARKED_DECIMAL = re.compile(f'"{_DECIMAL_MARK}([^"]+)"')
_LONG_EXPONENT_CHARS = 5  # a shorter exponent cannot be out of range


def encode_json(value: Any) -> str:
    """Return a decoded value as JSON, with all digits of its decimals."""
    text = _dumps(value)
    return _MARKED_DECIMAL.sub(r"\1", text) if _DECIMAL_MARK in text else text


def _mark_decimal(value: Any) -> str:
    """Mark a Decimal, which the encoder does not support, as text; ``encode_json`` removes the quotes."""
    if not isinstance(value, Decimal):
        raise TypeError(f"Cannot encode {type(value).__name__} as JSON")
    return f"{_DECIMAL_MARK}{value}"


_dumps = json.JSONEncoder(ensure_ascii=False, default=_mark_decimal).encode


def normalize_json_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    wrong = {}
    for index, text in enumerate(texts):
        if text is not None:
            reason = _find_json_problem(text, is_parsed=field.sql_type != "json")
            if reason is not None:
                wrong[index] = reason
    return texts, wrong


def _find_json_problem(text: str, *, is_parsed: bool) -> str | None:
    """Return the problem of a text, if any. ``is_parsed``: the type is jsonb, which is stricter than json."""
    try:
        value = _loads(text)
    except (ValueError, RecursionError):
        return "must be valid JSON"
    if not is_parsed:
        return None
    if _ESCAPED_NUL.search(text):
        return "must not contain a NUL character, which PostgreSQL cannot store"
    if "\\u" in text and not _has_no_lone_surrogates(value):
        return "must not contain an unpaired surrogate, which PostgreSQL cannot store"
    return None


def _has_no_lone_surrogates(value: Any) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")


def _reject_float_with_too_many_digits(text: str) -> float:
    exponent = text.lower().partition("e")[2]
    if (len(exponent) >= _LONG_EXPONENT_CHARS or len(text) > 1_000) and exceeds_numeric_digits(text):  # noqa: PLR2004
        raise ValueError("Number with too many digits")
    return 0.0


_loads = json.JSONDecoder(parse_constant=_reject_constant, parse_float=_reject_float_with_too_many_digits).decode
