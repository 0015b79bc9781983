"""The status of every item of a job, from the few batches that are still alive. Says the same as view item_status."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from tidemill.domain.status import ItemStatus

_OF_A_RANGE = {"leased": ItemStatus.PROCESSING, "ready": ItemStatus.PENDING, "cancelled": ItemStatus.CANCELLED}
_WAITING = (ItemStatus.PENDING, ItemStatus.RETRY_WAIT)


@dataclass(frozen=True, slots=True)
class Standing:
    """Live ranges ``(lo, hi, state)`` by their end, and the items of leased lists; read in one snapshot."""

    ranges: Sequence[tuple[int, int, str]] = ()
    turning: frozenset[int] = frozenset()
    sparse: bool = False
    _ends: list[int] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", [hi for _, hi, _ in self.ranges])

    def status(self, seq: int, stored: str | None) -> str | None:
        """What an item is, given the status of its outcome if it has one."""
        if stored is not None:
            return ItemStatus.PROCESSING if stored in _WAITING and seq in self.turning else stored
        # Live ranges do not overlap: the first one that ends behind the item covers it, or none does.
        place = bisect_right(self._ends, seq)
        if place < len(self.ranges) and self.ranges[place][0] <= seq:
            return _OF_A_RANGE[self.ranges[place][2]]
        return ItemStatus.DONE if self.sparse else None
