"""Tests that encoded JSON can be stored."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from tidemill.store.jsonb import encode_json


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
