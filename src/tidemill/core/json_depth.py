"""How deep JSON may be nested: a value that one stack can read may exhaust another."""

import re

MAX_JSON_DEPTH = 200
_JSON_STRING, _JSON_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"'), re.compile(rb"[][{}]")


def is_json_too_deep(data: bytes) -> bool:
    """Whether encoded JSON is nested more than MAX_DEPTH levels deep. Most rows have fewer brackets than that."""
    if data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH:
        return False
    depth = deepest = 0
    for bracket in _JSON_BRACKET.findall(_JSON_STRING.sub(b"", data)):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest > MAX_JSON_DEPTH
