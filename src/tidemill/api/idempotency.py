"""The Idempotency-Key header: quoted, as the draft has it, or bare."""

import re

from tidemill.api.problems import Refusal

_QUOTED = re.compile(r'"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\]){1,200})"')
_BARE = re.compile(r"[\x21\x23-\x2b\x2d-\x7e]{1,200}")
PATTERN = f"^({_QUOTED.pattern}|{_BARE.pattern})$"  # for the OpenAPI document


def parse_key(header: str | None) -> str | None:
    """The key, the same for both spellings; 400 when it is malformed."""
    if header is None:
        return None
    quoted = _QUOTED.fullmatch(header.strip())
    if quoted:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    if _BARE.fullmatch(header.strip()):
        return header.strip()
    raise Refusal(400, "Idempotency-Key has 1 to 200 printable characters, in quotes or without")
