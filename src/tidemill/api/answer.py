"""Answers to what is asked most: written from rows as they are.

Their shapes are declared like those of all others, and the tests hold them to it: no model is made of a row on
its way out.
"""

import msgspec
from starlette.responses import Response

encode = msgspec.json.Encoder().encode


class Answer(Response):
    """A value that is JSON already."""

    media_type = "application/json"

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
