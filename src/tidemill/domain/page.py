"""Pages of a list: keyset only. The place where the next page goes on travels through the hands of clients."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.domain.errors import InvalidInput

MAX_PAGE = 1_000
MAX_NUMBER = 2**62  # a bigint with room for a step beyond it
LONGEST_MOMENT = 40  # characters
FOREIGN_CURSOR = "the cursor does not belong to this list: begin without one"

Part = Callable[[object], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows, and ``after``: the place of the next page, None at the end. A page may be short and still have one."""

    items: list[T]
    after: tuple[Any, ...] | None


def moment(value: object) -> datetime:
    if not isinstance(value, str) or len(value) > LONGEST_MOMENT:
        raise ValueError("not a moment")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return at.astimezone(UTC)  # OverflowError at the ends of time


def number(value: object) -> int:
    if type(value) is not int or not -1 <= value <= MAX_NUMBER:
        raise ValueError("not a number of ours")
    return value


def identity(value: object) -> UUID:
    if not isinstance(value, str):
        raise TypeError("not an id")
    return UUID(value)


@dataclass(frozen=True, slots=True)
class Walk:
    """A way through a list: its name, and what a place on it is made of."""

    name: str
    parts: tuple[Part, ...]

    def place(self, mark: str, *parts: Any) -> tuple[Any, ...]:
        """A place in plain values: whoever gets it may write it as JSON, and bring it back."""
        return (self.name, mark, *(_plain(part) for part in parts))

    def read(self, after: object, mark: str) -> tuple[Any, ...]:
        """The parts of a place on this walk, for the same list; InvalidInput for everything else."""
        said = after if isinstance(after, list | tuple) else ()
        if len(said) != len(self.parts) + 2 or tuple(said[:2]) != (self.name, mark):
            raise InvalidInput(FOREIGN_CURSOR)
        try:
            return tuple(read(part) for read, part in zip(self.parts, said[2:], strict=True))
        except (ValueError, TypeError, OverflowError):
            raise InvalidInput(FOREIGN_CURSOR) from None


def walk_of(after: object, walks: Sequence[Walk]) -> Walk:
    """Which of these walks a place says it is on."""
    said = after[0] if isinstance(after, list | tuple) and after else None
    for walk in walks:
        if walk.name == said:
            return walk
    raise InvalidInput(FOREIGN_CURSOR)


def mark_of(*filters: object) -> str:
    """What a list is asked for, in short: a place in one list is none in another."""
    return f"{zlib.crc32(repr(filters).encode(errors='replace')):08x}"


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"a page has 1 to {MAX_PAGE} rows, not {limit}")


def check_text(what: str, *values: str | None) -> None:
    """Text that a database can be asked with."""
    for value in values:
        if value is not None and ("\x00" in value or not _is_unicode(value)):
            raise InvalidInput(f"{what} has characters that no text has")


def check_moments(*values: datetime | None) -> None:
    if any(value is not None and value.tzinfo is None for value in values):
        raise InvalidInput("a date needs a time zone")


def _plain(part: Any) -> Any:
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    return str(part) if isinstance(part, UUID) else part


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
