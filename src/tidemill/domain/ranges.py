"""Which bytes of a file somebody asks for, and whether he has them already (RFC 9110, 13 and 14)."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """From ``start`` to before ``end``; empty if there is nothing of the kind in the file."""

    start: int
    end: int

    @property
    def length(self) -> int:
        return max(self.end - self.start, 0)


def asked_range(header: str | None, size: int) -> ByteRange | None:
    """None where all of the file is the answer: nothing was asked, or not in a way that has to be understood."""
    found = _RANGE.fullmatch(header or "")
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        return ByteRange(max(size - int(found[2]), 0), size)
    start, end = int(found[1]), int(found[2]) + 1 if found[2] else size
    return None if end <= start and found[2] else ByteRange(start, min(end, size))


def is_known(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller has this very file."""
    said = [word.strip().removeprefix("W/") for word in (if_none_match or "").split(",")]
    return "*" in said or etag in said
