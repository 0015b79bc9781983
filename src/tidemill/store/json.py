"""JSON on the hot path."""

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec

from tidemill.domain.depth import MAX_DEPTH, is_too_deep

_encoder = msgspec.json.Encoder()
_exact_encoder = msgspec.json.Encoder(decimal_format="number")
decode = msgspec.json.Decoder().decode
decode_exactly = msgspec.json.Decoder(float_hook=Decimal).decode  # fractions with all their digits
NUL, NULL = b"\\u0000", b"null"
SHORT = 2 * MAX_DEPTH  # bytes: of so few, nothing deeper can be made


def encode(value: Any, *, exact: bool = False) -> bytes:
    """Encode, with dates and ids in their text form. TypeError or ValueError for what cannot be stored.

    A Decimal is text, too; ``exact``, where it stands for a fraction of decoded JSON, it is that number again.
    """
    data = (_exact_encoder if exact else _encoder).encode(value)
    if NUL in data or NULL in data:  # a NUL character, or a NaN that would turn into null
        _refuse(value)
        if NUL in data:  # or in an object of the user's own, which only the encoder looks into
            _refuse(decode(data))
    if len(data) > SHORT and is_too_deep(data):
        raise ValueError(f"nested more than {MAX_DEPTH} levels deep")
    return data


def encode_lines(values: Sequence[Any]) -> list[bytes]:
    """Many at once. Raises as ``encode`` does; for which of them, only one by one can tell."""
    data = _encoder.encode_lines(values)
    lines = data.splitlines()
    if NUL in data or NULL in data or max(map(len, lines), default=0) > SHORT:
        return [encode(value) for value in values]
    return lines


def decode_input(text: str, *, exact: bool = False) -> Any:
    """An input for people to look at. What nobody can read (half a pair of surrogates) is shown as it is written."""
    try:
        return decode_exactly(text) if exact else decode(text)
    except msgspec.DecodeError:
        return text


def _refuse(value: Any) -> None:
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("a NUL character cannot be stored")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number that JSON has")
    if isinstance(value, dict):
        for pair in value.items():
            _refuse(pair)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            _refuse(part)
