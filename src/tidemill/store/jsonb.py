"""Fast JSON encoding and decoding for stored values."""

import math
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import msgspec

from tidemill.core.json_input import MAX_JSON_DEPTH, is_json_too_deep

_json_encoder = msgspec.json.Encoder()
_exact_json_encoder = msgspec.json.Encoder(decimal_format="number")
decode_json = msgspec.json.Decoder().decode
NUL_ESCAPE, NULL_LITERAL = b"\\u0000", b"null"
DEPTH_CHECK_MIN_BYTES = 2 * MAX_JSON_DEPTH  # shorter JSON cannot exceed the depth limit


def _parse_exact_number(text: str) -> Decimal | str:
    """Return a number with all its digits, or the text of a number whose exponent is out of range."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return text


decode_json_exact = msgspec.json.Decoder(float_hook=_parse_exact_number).decode


def encode_json(value: Any, *, exact: bool = False) -> bytes:
    """Encode a value as JSON, with dates and UUIDs as text. Raises TypeError or ValueError if it cannot be stored.

    A Decimal is encoded as text or, with ``exact``, as a number.
    """
    data = (_exact_json_encoder if exact else _json_encoder).encode(value)
    if NUL_ESCAPE in data or NULL_LITERAL in data:  # a NUL character, or a NaN that became null
        _reject_unstorable(value)
        if NUL_ESCAPE in data:  # NUL in a custom object, which only the encoder can read
            _reject_unstorable(decode_json(data))
    if len(data) > DEPTH_CHECK_MIN_BYTES and is_json_too_deep(data):
        raise ValueError(f"nested more than {MAX_JSON_DEPTH} levels deep")
    return data


def encode_json_values(values: Sequence[Any]) -> list[bytes]:
    """Encode many values. Raises as ``encode_json`` does, without reporting which value failed."""
    data = _json_encoder.encode_lines(values)
    lines = data.splitlines()
    if NUL_ESCAPE in data or NULL_LITERAL in data or max(map(len, lines), default=0) > DEPTH_CHECK_MIN_BYTES:
        return [encode_json(value) for value in values]
    return lines


def decode_input_or_text(text: str, *, exact: bool = False) -> Any:
    """Decode an input for display. Return the text itself if it cannot be decoded (half a surrogate pair)."""
    try:
        return decode_json_exact(text) if exact else decode_json(text)
    except msgspec.DecodeError:
        return text


def _reject_unstorable(value: Any) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("NUL characters cannot be stored")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a valid JSON number")
    if isinstance(value, dict):
        for pair in value.items():
            _reject_unstorable(pair)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _reject_unstorable(part)
