"""What is encoded can be stored, whatever objects it is made of."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from tidemill.store.json import encode


@dataclass
class Note:
    text: str


class Word(Enum):
    BAD = "a\x00b"


@pytest.mark.parametrize("value", ["a\x00b", {"a": ["\x00"]}, Note("a\x00b"), {"d": Note("\x00")}, {"w": Word.BAD}])
def test_a_nul_character_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(ValueError, match="a NUL character cannot be stored"):
        encode(value)


def test_what_only_looks_like_one_is_stored() -> None:
    assert encode({"path": "C:\\u0000"}) == b'{"path":"C:\\\\u0000"}'
