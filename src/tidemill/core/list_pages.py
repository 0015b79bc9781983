"""Keyset pagination: cursors, checks of parameters, and how much one page may scan."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

from tidemill.core.errors import InvalidInput

PAGE_MAX_ROWS = 1_000
BIGINT_SAFE_MAX = 2**62  # adding to it cannot overflow a bigint
TIMESTAMP_MAX_CHARS = 40
FOREIGN_CURSOR_MESSAGE = "The cursor does not belong to this list. Start without a cursor."

CursorPartReader = Callable[[object], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows, and ``after``: the cursor of the next page, None at the end. A short page may have a next page."""

    items: list[T]
    after: tuple[Any, ...] | None


def parse_cursor_timestamp(value: object) -> datetime:
    if not isinstance(value, str) or len(value) > TIMESTAMP_MAX_CHARS:
        raise ValueError("not a valid timestamp")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("the timestamp has no time zone")
    return at.astimezone(UTC)  # raises OverflowError near the first and the last possible date


def parse_number(value: object) -> int:
    if type(value) is not int or not -1 <= value <= BIGINT_SAFE_MAX:
        raise ValueError("not a valid integer")
    return value


def parse_cursor_uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise TypeError("not a valid ID")
    return UUID(value)


@dataclass(frozen=True, slots=True)
class ListOrder:
    """An order of a list: its name, and the parts of a cursor position in it."""

    name: str
    parts: tuple[CursorPartReader, ...]

    def build_position(self, fingerprint: str, *parts: Any) -> tuple[Any, ...]:
        """Return a position as plain values that can be encoded as JSON."""
        return (self.name, fingerprint, *(_serialize_cursor_part(part) for part in parts))

    def parse_position(self, after: object, fingerprint: str) -> tuple[Any, ...]:
        """Return the parts of a position in this order.

        Raises:
            InvalidInput: The position belongs to another order or another list, or is malformed.
        """
        values = after if isinstance(after, list | tuple) else ()
        if len(values) != len(self.parts) + 2 or tuple(values[:2]) != (self.name, fingerprint):
            raise InvalidInput(FOREIGN_CURSOR_MESSAGE)
        try:
            return tuple(read(part) for read, part in zip(self.parts, values[2:], strict=True))
        except (ValueError, TypeError, OverflowError):
            raise InvalidInput(FOREIGN_CURSOR_MESSAGE) from None


def find_order_of_position(after: object, formats: Sequence[ListOrder]) -> ListOrder:
    """Return the order that a position belongs to; raise InvalidInput if it belongs to no order."""
    name = after[0] if isinstance(after, list | tuple) and after else None
    for order in formats:
        if order.name == name:
            return order
    raise InvalidInput(FOREIGN_CURSOR_MESSAGE)


def fingerprint_filters(*filters: object) -> str:
    """Return a short fingerprint of a list's filters; a cursor is valid only for the same filters."""
    return f"{zlib.crc32(repr(filters).encode(errors='replace')):08x}"


def check_page_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX_ROWS:
        raise InvalidInput(f"The page size must be 1 to {PAGE_MAX_ROWS} rows, not {limit}")


def check_storable_text(what: str, *values: str | None) -> None:
    """Raise InvalidInput if PostgreSQL cannot store one of the values; ``what`` names them in the message."""
    for value in values:
        if value is not None and ("\x00" in value or not _is_encodable(value)):
            raise InvalidInput(f"{what} contains a NUL character or an unpaired surrogate")


def check_time_zones(*values: datetime | None) -> None:
    if any(value is not None and value.tzinfo is None for value in values):
        raise InvalidInput("The timestamp has no time zone. Add one, as in 2026-01-31T12:00:00Z.")


def _serialize_cursor_part(part: Any) -> Any:
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    return str(part) if isinstance(part, UUID) else part


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


PAGE_ITEM_BUDGET = 10_000  # items: 2 to 5 ms
PAGE_BATCH_BUDGET = 5_000  # batches, dead letters or jobs that are skipped because they do not match
PAGE_SEARCH_BUDGET = 25_000  # jobs that a search for a part of a name reads: about 100 ms
