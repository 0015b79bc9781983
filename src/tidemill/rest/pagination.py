"""The ``after`` of a list: opaque to clients, checked by us as if they had made it up."""

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from tidemill.core.errors import InvalidInput

CURSOR_MAX_CHARS = 400


def build_next_page(position: tuple[Any, ...] | None) -> dict[str, str]:
    """The part of a page that leads to the next one: nothing at the end."""
    return {} if position is None else {"next_page": encode_cursor(position)}


def encode_cursor(position: tuple[Any, ...]) -> str:
    """A place in a list as a token."""
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in position]
    text = json.dumps(plain, separators=(",", ":"), default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(token: str | None) -> tuple[Any, ...] | None:
    """The place a token stands for: plain values, whose meaning the list itself checks."""
    if not token:  # absent or empty: from the beginning
        return None
    try:
        raw = base64.b64decode(
            token[:CURSOR_MAX_CHARS] + "=" * (-len(token[:CURSOR_MAX_CHARS]) % 4), altchars=b"-_", validate=True
        )
        place = json.loads(raw, parse_constant=_reject_constant)
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidInput("`after` is not a token of this list") from None
    if not isinstance(place, list) or any(isinstance(value, list | dict) for value in place):
        raise InvalidInput("`after` is not a token of this list")
    return tuple(place)


def _reject_constant(_: str) -> None:
    raise ValueError
