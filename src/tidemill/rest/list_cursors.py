"""Encodes positions in lists as cursors of pages."""

import base64
import binascii
import json
from datetime import datetime
from typing import Any

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import FOREIGN_CURSOR_MESSAGE

CURSOR_MAX_CHARS = 400


def build_next_page_dict(position: tuple[Any, ...] | None) -> dict[str, str]:
    """Return the ``next_page`` field of a page; empty on the last page."""
    return {} if position is None else {"next_page": encode_cursor(position)}


def encode_cursor(position: tuple[Any, ...]) -> str:
    """Encode a position in a list as a cursor."""
    plain = [value.isoformat() if isinstance(value, datetime) else value for value in position]
    text = json.dumps(plain, separators=(",", ":"), default=str)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode_cursor(token: str | None) -> tuple[Any, ...] | None:
    """Decode a cursor to plain values, which the list validates; raise InvalidInput if it is malformed."""
    if not token:  # the first page
        return None
    try:
        raw = base64.b64decode(
            token[:CURSOR_MAX_CHARS] + "=" * (-len(token[:CURSOR_MAX_CHARS]) % 4), altchars=b"-_", validate=True
        )
        position = json.loads(raw, parse_constant=_reject_constant)
    except (ValueError, binascii.Error, RecursionError):
        raise InvalidInput(FOREIGN_CURSOR_MESSAGE) from None
    if not isinstance(position, list) or any(isinstance(value, list | dict) for value in position):
        raise InvalidInput(FOREIGN_CURSOR_MESSAGE)
    return tuple(position)


def _reject_constant(_: str) -> None:
    raise ValueError
