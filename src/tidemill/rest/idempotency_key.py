"""The header Idempotency-Key."""

import re
from typing import Annotated, Any

from fastapi import Header

from tidemill.rest.problems import HttpError

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
