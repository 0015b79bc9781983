"""FastAPI dependencies and parameters that many routes share: runtime, database, idempotency key, cursors of pages."""

import base64
import binascii
import json
import re
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Request

from tidemill.core.errors import InvalidInput
from tidemill.core.list_pages import FOREIGN_CURSOR_MESSAGE
from tidemill.rest.problems import HttpError
from tidemill.runtime import Runtime
from tidemill.store.database import Database


def get_runtime(request: Request) -> Runtime:
    return cast("Runtime", request.app.state.runtime)


async def _provide_runtime(
    request: Request,
) -> Runtime:  # async, because FastAPI calls sync functions in a thread, which takes 0.3 ms
    return get_runtime(request)


async def _provide_database(request: Request) -> Database:
    return get_runtime(request).db


RuntimeDep = Annotated[Runtime, Depends(_provide_runtime)]
DatabaseDep = Annotated[Database, Depends(_provide_database)]


_QUOTED_KEY = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,200})"')
_BARE_KEY = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]{1,200}")
IDEMPOTENCY_KEY_PATTERN = f"^({_QUOTED_KEY.pattern}|{_BARE_KEY.pattern})$"  # for the OpenAPI document


def parse_idempotency_key(header: str | None) -> str | None:
    """Return the key of a quoted or bare header; respond 400 if it is malformed."""
    if header is None:
        return None
    quoted = _QUOTED_KEY.fullmatch(header.strip())
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE_KEY.fullmatch(header.strip()):
        return header.strip()
    raise HttpError(400, "Invalid Idempotency-Key. Send 1 to 200 printable characters, with or without quotes.")


IDEMPOTENCY_KEY_DESCRIPTION = (
    "A retry with the same key returns the first job. A key has 1 to 200 printable characters, with or without quotes."
)
IDEMPOTENCY_KEY_SCHEMA: dict[str, Any] = {"pattern": IDEMPOTENCY_KEY_PATTERN}


IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description=IDEMPOTENCY_KEY_DESCRIPTION, json_schema_extra=IDEMPOTENCY_KEY_SCHEMA),
]


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
