"""Answers to what is asked most: written from rows as they are.

Their shapes are declared like those of all others, and the tests hold them to it; checking each value of every row
again on its way out would cost more than to look it up.
"""

from typing import Any

import msgspec
from starlette.responses import Response


class Answer(Response):
    """A value as JSON."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)
