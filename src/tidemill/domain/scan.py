"""How much of a database one page may look at."""

from collections.abc import Sequence
from typing import NamedTuple

ITEM_BUDGET = 10_000  # items: 2 to 5 ms
BATCH_BUDGET = 5_000  # batches, dead letters or jobs that are passed over because they do not match


class Picked(NamedTuple):
    """A batch that has rows for a page: how many, and among how many items they must be looked for."""

    id: int
    items: int
    width: int


def enough(picked: Sequence[Picked], wanted: int, *, begun: int | None = None, budget: int) -> int:
    """How many of these batches to open for so many rows, within the budget.

    Nobody knows how many rows are left in the one that an earlier page has begun: it is opened beside the others.
    """
    items = width = 0
    for n, batch in enumerate(picked):
        if items >= wanted or width > budget:
            return n
        if batch.id != begun:
            items += batch.items
            width += batch.width
    return len(picked)


def windows(lo: int, hi: int, first: int, budget: int) -> list[tuple[int, int]]:
    """A small window of ``[lo, hi)``, then what is left of the budget at once.

    Where matches are frequent, little is looked at; where they are rare, a trip to the server costs more than the rows.
    """
    end = min(hi, lo + budget)
    cut = min(lo + first, end)
    return [window for window in ((lo, cut), (cut, end)) if window[0] < window[1]]
