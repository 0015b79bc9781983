"""A job's items: which walk goes through those that are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from tidemill.domain.errors import InvalidInput
from tidemill.domain.page import MAX_NUMBER, Page, Walk, mark_of, walk_of
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection, Database, one_snapshot, one_statement
from tidemill.store.lists import exceptions, open_items, sequence
from tidemill.store.lists.exceptions import EXCEPTIONS
from tidemill.store.lists.fetch import Row
from tidemill.store.lists.grid import Grid
from tidemill.store.lists.open_items import OPEN


@dataclass(frozen=True, slots=True)
class Asked:
    """Which items of a job; ``after`` is where an earlier page ended, ``seq`` where to begin without one."""

    statuses: Sequence[ItemStatus] = ()
    after: object = None
    seq: int | None = None
    codes: Sequence[str] | None = None
    key: str | None = None

    def __post_init__(self) -> None:
        if self.codes is not None and set(self.statuses) - {ItemStatus.FAILED}:
            raise InvalidInput("error codes are asked for with status failed, or with none")
        if self.codes is not None and self.seq is not None and self.after is None:
            raise InvalidInput("error codes and seq do not go together")
        if self.seq is not None and not 0 <= self.seq <= MAX_NUMBER:
            raise InvalidInput(f"there is no item {self.seq}: seq begins at 0")

    def mark(self, job_id: UUID) -> str:
        codes = None if self.codes is None else sorted(set(self.codes))
        return mark_of(job_id, sorted(set(self.statuses)), codes, *([] if self.key is None else [self.key]))

    @property
    def walk(self) -> Walk:
        """The order that is quick for what is asked for; the place where an earlier page ended says which it was.

        Open items by how long they have been so, exceptions by when they came to be, everything else by seq; and any
        of them by seq, from ``seq`` on, or with a ``key``.
        """
        if self.after is not None:
            return walk_of(self.after, self._possible)
        return self._natural if self.seq is None else sequence.WALK

    @property
    def _natural(self) -> Walk:
        asked = set(self.statuses)
        if self.key is not None:  # nothing is in order of keys: items are looked through, within the budget of a page
            return sequence.WALK
        if self.codes is not None or (asked and asked <= set(EXCEPTIONS)):
            return exceptions.WALK
        return open_items.WALK if asked and asked <= set(OPEN) else sequence.WALK

    @property
    def _possible(self) -> list[Walk]:
        natural = self._natural
        walks = [natural] if self.codes is not None else [natural, sequence.WALK]
        if natural is exceptions.WALK and ItemStatus.CANCELLED in self.statuses:
            walks.append(exceptions.CANCELLED)
        return walks


async def list_items(db: Database, grid: Grid, asked: Asked, *, limit: int) -> Page[Row]:
    """A page of what is asked for, with no more trips to the server than it takes."""
    if asked.walk is sequence.WALK:
        return await db.run(list_by_seq, grid, asked, limit=limit)
    if asked.walk is exceptions.WALK and ItemStatus.CANCELLED not in asked.statuses:
        return await db.run(list_exceptions, grid, asked, limit=limit)
    return await db.run(list_by_ranges, grid, asked, limit=limit)


@one_statement  # nearly always; and where it takes some more, each tells of other items
async def list_by_seq(conn: Connection, grid: Grid, asked: Asked, *, limit: int) -> Page[Row]:
    """In order of seq."""
    mark = asked.mark(grid.id)
    return await sequence.list_by_seq(
        conn,
        grid,
        asked.statuses,
        mark,
        limit=limit,
        start=asked.seq or 0,
        after=asked.after,
        key=asked.key,
        codes=asked.codes,
    )


@one_statement
async def list_exceptions(conn: Connection, grid: Grid, asked: Asked, *, limit: int) -> Page[Row]:
    """Those that have an outcome, in order of what happened to them."""
    mark, after = asked.mark(grid.id), asked.after
    if asked.codes is not None:
        return await exceptions.list_codes(conn, grid.id, asked.codes, mark, limit=limit, after=after)
    return await exceptions.list_exceptions(conn, grid.id, asked.statuses, mark, limit=limit, after=after)


@one_snapshot
async def list_by_ranges(conn: Connection, grid: Grid, asked: Asked, *, limit: int) -> Page[Row]:
    """Those that batches tell of, in order of what happened to them."""
    after = asked.after
    if asked.walk is open_items.WALK:
        page = await open_items.list_open(conn, open_items.Asked(asked.statuses, grid.id), limit=limit, after=after)
        for item in page.items:
            del item["is_due"], item["batch_id"], item["job_id"]
        return page
    mark = asked.mark(grid.id)
    if asked.walk is exceptions.CANCELLED:
        return await exceptions.list_cancelled(conn, grid.id, mark, limit=limit, after=after)
    return await exceptions.list_exceptions(conn, grid.id, asked.statuses, mark, limit=limit, after=after)
