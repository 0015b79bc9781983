"""JSON on the hot path."""

from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()
decode = msgspec.json.Decoder().decode
NUL = b"\\u0000"


def encode(value: Any) -> bytes:
    """Encode, with dates and ids in their text form. Raises TypeError or ValueError for what JSON cannot hold."""
    data = _encoder.encode(value)
    if NUL in data and _has_nul(value):
        raise ValueError("a NUL character cannot be stored")
    return data


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_nul, value))
    return False
