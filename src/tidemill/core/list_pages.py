"""Keyset pages: cursors that clients send back, checks of parameters, and how much one page may scan."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from tidemill.core.errors import InvalidInput

PAGE_MAX_ROWS = 1_000
BIGINT_SAFE_MAX = 2**62  # a bigint with room for a step beyond it
TIMESTAMP_MAX_CHARS = 40  # characters
FOREIGN_CURSOR_MESSAGE = "the cursor does not belong to this list: begin without one"

CursorPartReader = Callable[[object], Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows, and ``after``: the place of the next page, None at the end. A page may be short and still have one."""

    items: list[T]
    after: tuple[Any, ...] | None


def parse_timestamp(value: object) -> datetime:
    if not isinstance(value, str) or len(value) > TIMESTAMP_MAX_CHARS:
        raise ValueError("not a moment")
    at = datetime.fromisoformat(value)
    if at.tzinfo is None:
        raise ValueError("a moment needs a time zone")
    return at.astimezone(UTC)  # OverflowError at the ends of time


def parse_number(value: object) -> int:
    if type(value) is not int or not -1 <= value <= BIGINT_SAFE_MAX:
        raise ValueError("not a number of ours")
    return value


def parse_uuid(value: object) -> UUID:
    if not isinstance(value, str):
        raise TypeError("not an id")
    return UUID(value)


@dataclass(frozen=True, slots=True)
class ListOrder:
    """A way through a list: its name, and what a place on it is made of."""

    name: str
    parts: tuple[CursorPartReader, ...]

    def build_position(self, fingerprint: str, *parts: Any) -> tuple[Any, ...]:
        """A place in plain values: whoever gets it may write it as JSON, and bring it back."""
        return (self.name, fingerprint, *(_serialize_cursor_part(part) for part in parts))

    def parse_position(self, after: object, fingerprint: str) -> tuple[Any, ...]:
        """The parts of a place on this walk, for the same list; InvalidInput for everything else."""
        said = after if isinstance(after, list | tuple) else ()
        if len(said) != len(self.parts) + 2 or tuple(said[:2]) != (self.name, fingerprint):
            raise InvalidInput(FOREIGN_CURSOR_MESSAGE)
        try:
            return tuple(read(part) for read, part in zip(self.parts, said[2:], strict=True))
        except (ValueError, TypeError, OverflowError):
            raise InvalidInput(FOREIGN_CURSOR_MESSAGE) from None


def find_list_order(after: object, formats: Sequence[ListOrder]) -> ListOrder:
    """Which of these walks a place says it is on."""
    said = after[0] if isinstance(after, list | tuple) and after else None
    for walk in formats:
        if walk.name == said:
            return walk
    raise InvalidInput(FOREIGN_CURSOR_MESSAGE)


def fingerprint_filters(*filters: object) -> str:
    """What a list is asked for, in short: a place in one list is none in another."""
    return f"{zlib.crc32(repr(filters).encode(errors='replace')):08x}"


def check_page_limit(limit: int) -> None:
    if not 1 <= limit <= PAGE_MAX_ROWS:
        raise InvalidInput(f"a page has 1 to {PAGE_MAX_ROWS} rows, not {limit}")


def check_storable_text(what: str, *values: str | None) -> None:
    """Text that a database can be asked with."""
    for value in values:
        if value is not None and ("\x00" in value or not _is_encodable(value)):
            raise InvalidInput(f"{what} has characters that no text has")


def check_time_zones(*values: datetime | None) -> None:
    if any(value is not None and value.tzinfo is None for value in values):
        raise InvalidInput("a date needs a time zone")


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
PAGE_BATCH_BUDGET = 5_000  # batches, dead letters or jobs that are passed over because they do not match


class PageBatch(NamedTuple):
    """A batch that has rows for a page: how many, and among how many items they must be looked for."""

    id: int
    items: int
    width: int


def count_batches_to_open(
    batches: Sequence[PageBatch], rows: int, *, started_batch_id: int | None = None, budget: int
) -> int:
    """How many of these batches to open for so many rows, within the budget.

    Nobody knows how many rows are left in the one that an earlier page has begun: it is opened beside the others.
    """
    items = width = 0
    for n, batch in enumerate(batches):
        if items >= rows or width > budget:
            return n
        if batch.id != started_batch_id:
            items += batch.items
            width += batch.width
    return len(batches)


def split_scan_window(lo: int, hi: int, first: int, budget: int) -> list[tuple[int, int]]:
    """A small window of ``[lo, hi)``, then what is left of the budget at once.

    Where matches are frequent, little is looked at; where they are rare, a trip to the server costs more than the rows.
    """
    end = min(hi, lo + budget)
    cut = min(lo + first, end)
    return [window for window in ((lo, cut), (cut, end)) if window[0] < window[1]]
