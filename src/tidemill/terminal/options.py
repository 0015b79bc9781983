"""Parsing of command-line options that several features share."""

import re
from typing import Any

from tidemill.core.errors import InvalidInput


def parse_policy_option(text: str) -> dict[str, Any]:
    mode, _, bound = text.partition(":")
    try:
        if bound.endswith("%"):
            return {"mode": mode, "max_percent": float(bound[:-1])}
        return {"mode": mode} | ({"max_failed": int(bound)} if bound else {})
    except ValueError:
        raise InvalidInput(f"--policy {text!r}: the bound is a number or a percentage") from None


_AGE_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def parse_age_seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if found is None:
        raise InvalidInput(f"{text!r} is not an age: say 90d, 12w, 36h, 30m or 10s")
    return float(found[1]) * _AGE_UNIT_SECONDS[found[2]]
