"""Reads numbers, and checks the ranges of PostgreSQL's types."""

import math
import re
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation

from tidemill.tables.resource import Field
from tidemill.tables.values.column_texts import (
    ColumnTexts,
    ParsedColumn,
    find_indexes_not_matching,
    normalize_mismatches,
)

_INTEGER_PATTERN = r"[+-]?[0-9]{1,18}"
_NUMBER_PATTERN = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_match_number = re.compile(_NUMBER_PATTERN).fullmatch
_LONG_NUMBER_CHARS = 1_000  # a shorter number cannot have too many digits
_NUMERIC_DIGITS_MAX, _NUMERIC_SCALE_MAX = 131_072, 16_383  # of numeric, before and after the decimal point
_REAL_MAX, _REAL_MIN = 3.4028235677973366e38, 7.006492321624085e-46  # beyond these, real overflows or underflows
_SPECIAL_NUMBERS = {"nan": "NaN", "infinity": "Infinity", "-infinity": "-Infinity"}
_PRECISION_LIMIT_CONTEXT = Context(prec=5_000)


def normalize_integer_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    wrong = dict.fromkeys(find_indexes_not_matching(_INTEGER_PATTERN, texts), "must be a whole number")
    texts, wrong = normalize_mismatches(texts, wrong, _normalize_integer_text)
    limit = 1 << ((field.bits or 64) - 1)
    digits = len(str(limit))
    if any(text is not None and len(text) >= digits for text in texts):
        for index, text in enumerate(texts):
            if text is not None and index not in wrong and not -limit <= int(text) < limit:
                wrong[index] = f"must be between {-limit} and {limit - 1}"
    return texts, wrong


def _normalize_integer_text(text: str) -> str | None:
    """Return a whole number in another notation (5.0, 1e3, leading zeros) as an integer; None if it is not one."""
    value = Decimal(text) if len(text) < _LONG_NUMBER_CHARS and _match_number(text) else None
    if value is None or value.copy_abs() >= 10**20 or value != value.to_integral_value():
        return None
    return str(int(value))


def normalize_number_column(field: Field, texts: ColumnTexts) -> ParsedColumn:
    wrong = dict.fromkeys(find_indexes_not_matching(_NUMBER_PATTERN, texts), "must be a number")
    texts, wrong = (
        normalize_mismatches(texts, wrong, lambda text: _convert_special_number(field, text))
        if wrong
        else (texts, wrong)
    )
    if field.precision is not None:
        scale = field.scale or 0
        whole = field.precision - scale
        # A value that rounds up to one more digit does not fit either.
        limit = _PRECISION_LIMIT_CONTEXT.subtract(Decimal(10) ** whole, Decimal((0, (5,), -scale - 1)))
        reason = (
            f"must have at most {whole} digits before the decimal point"
            if whole >= 0
            else f"must be less than 1e{whole}"
        )
        _add_out_of_range_errors(texts, wrong, lambda text: Decimal(text).copy_abs() >= limit, reason)
    elif field.sql_type == "real":
        _add_out_of_range_errors(texts, wrong, _is_outside_real_range, "is out of range for type real")
    elif field.sql_type == "double precision":
        _add_out_of_range_errors(texts, wrong, _is_outside_double_range, "is out of range for type double precision")
    else:
        _add_out_of_range_errors(
            texts,
            wrong,
            lambda text: len(text) > _LONG_NUMBER_CHARS and exceeds_numeric_digits(text),
            "has too many digits",
        )
    return texts, wrong


def _add_out_of_range_errors(
    texts: ColumnTexts, wrong: dict[int, str], is_out: Callable[[str], bool], says: str
) -> None:
    for index, text in enumerate(texts):
        if text is not None and index not in wrong and text not in _SPECIAL_NUMBERS.values() and is_out(text):
            wrong[index] = says


def _convert_special_number(field: Field, text: str) -> str | None:
    """Return NaN or infinity as PostgreSQL writes it; None if the field has bounds or its type has no such value."""
    special = _SPECIAL_NUMBERS.get(text.lower())
    is_bounded = any(one is not None for one in (field.minimum, field.above, field.maximum, field.below))
    return None if is_bounded or (field.precision is not None and special != "NaN") else special


def exceeds_numeric_digits(text: str) -> bool:
    """Return whether a number has too many digits for numeric."""
    try:
        value = Decimal(text)
    except InvalidOperation:  # the exponent is too large for any type
        return True
    return value.adjusted() >= _NUMERIC_DIGITS_MAX or -int(value.as_tuple().exponent) > _NUMERIC_SCALE_MAX


def _is_outside_double_range(text: str) -> bool:
    value = float(text)
    return math.isinf(value) or (value == 0 and bool(Decimal(text)))


def _is_outside_real_range(text: str) -> bool:
    value = abs(float(text))
    return value >= _REAL_MAX or (value <= _REAL_MIN and bool(Decimal(text)))
