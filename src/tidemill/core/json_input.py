"""The type of JSON documents whose fields Tidemill does not know."""

import re
from typing import Any

MAX_JSON_DEPTH = 200
# Possessive quantifiers: otherwise, each character of a string takes memory, because the search may come back to it.
_JSON_STRING, _JSON_BRACKET = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'), re.compile(rb"[][{}]")


def is_json_too_deep(data: bytes) -> bool:
    """Return whether encoded JSON is nested more than MAX_JSON_DEPTH levels deep."""
    # Most rows have fewer brackets than that.
    if data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH:
        return False
    depth = deepest = 0
    for bracket in _JSON_BRACKET.findall(_JSON_STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_JSON_DEPTH


JsonObject = dict[str, Any]
"""A JSON object that Tidemill did not create: an item's input, a job's parameters or a response.
For fields that Tidemill itself defines, use a dataclass or a TypedDict."""
