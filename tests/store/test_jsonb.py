"""Tests that encoded JSON can be stored."""

from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

import pytest

from tidemill.store.jsonb import decode_input_or_text, encode_json


@dataclass
class Note:
    text: str


class Word(Enum):
    BAD = "a\x00b"


@pytest.mark.parametrize("value", ["a\x00b", {"a": ["\x00"]}, Note("a\x00b"), {"d": Note("\x00")}, {"w": Word.BAD}])
def test_json_encoding_rejects_nul_character_at_any_depth(value: Any) -> None:
    with pytest.raises(ValueError, match="NUL characters cannot be stored"):
        encode_json(value)


def test_json_encoding_keeps_escaped_text_that_resembles_nul() -> None:
    assert encode_json({"path": "C:\\u0000"}) == b'{"path":"C:\\\\u0000"}'


def test_exact_decoding_returns_number_with_extreme_exponent_as_text() -> None:
    assert decode_input_or_text("[1.50, 1e-99999999999999999999]", exact=True) == [
        Decimal("1.50"),
        "1e-99999999999999999999",
    ]
