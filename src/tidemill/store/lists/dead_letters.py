"""Failed items across jobs, the newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.domain.page import Page, Walk, identity, mark_of, moment, number
from tidemill.domain.scan import BATCH_BUDGET
from tidemill.store.database import Connection, one_snapshot
from tidemill.store.lists.fetch import Row, item_rows, rows
from tidemill.store.lists.grid import find_grid

WALK = Walk("dead_letters", (number, moment, identity, number))
OWNERS = 50  # whose dead letters are merged at a time: each costs a look into the index of every week
MOST_CAUSES = 1_000
_NEWEST = (datetime.max.replace(tzinfo=UTC), UUID(int=0), -1)


@dataclass(frozen=True, slots=True)
class Asked:
    """Which dead letters: of an owner or everybody's, of a job, of a kind, with some error codes, of some time."""

    owner_id: int | None = None
    kind: str | None = None
    codes: Sequence[str] | None = None
    job_id: UUID | None = None
    from_: datetime | None = None
    to: datetime | None = None

    @property
    def mark(self) -> str:
        codes = None if self.codes is None else sorted(set(self.codes))
        return mark_of(self.owner_id, self.kind, codes, self.job_id, self.from_, self.to)

    @property
    def is_filtered(self) -> bool:
        return self.kind is not None or self.codes is not None


@one_snapshot
async def list_dead_letters(conn: Connection, asked: Asked, *, limit: int, after: object = None) -> Page[Row]:
    """When there are very many owners, those of the first fifty come first, then those of the next."""
    first, *place = (-1, *_start(asked)) if after is None else WALK.read(after, asked.mark)
    owners = await _owners(conn, asked, first)
    found = await _pick(conn, asked, owners, place, limit) if owners else []
    ends = [row for row in found if row["is_end"]]
    picked = [row for row in found if not row["is_end"]]
    items = await _whole(conn, picked[:limit])
    if len(picked) > limit:
        return Page(items, WALK.place(asked.mark, first, *_place(picked[limit - 1])))
    if ends:
        return Page(items, WALK.place(asked.mark, first, *_place(ends[0])))
    more = len(owners) == OWNERS
    return Page(items, WALK.place(asked.mark, owners[-1] + 1, *_start(asked)) if more else None)


async def list_causes(
    conn: Connection, owner_id: int | None, *, kind: str | None = None, job_id: UUID | None = None
) -> list[Row]:
    """Error codes of dead letters: how many, in how many jobs, and when such a job last changed."""
    if job_id is not None:
        await find_grid(conn, job_id, owner_id)
    asked = {"owner_id": owner_id, "kind": kind, "job_id": job_id, "limit": MOST_CAUSES}
    return await rows(conn, "job/causes", asked)


async def _owners(conn: Connection, asked: Asked, first: int) -> list[int]:
    if asked.job_id is not None:
        return [(await find_grid(conn, asked.job_id, asked.owner_id)).owner_id]
    if asked.owner_id is not None:
        return [asked.owner_id]
    found = await rows(conn, "outcome/owners_of_dead_letters", {"owner_id": first, "limit": OWNERS})
    return [row["owner_id"] for row in found]


async def _pick(conn: Connection, asked: Asked, owners: list[int], place: Sequence[Any], limit: int) -> list[Row]:
    at, job, seq = place
    each = BATCH_BUDGET // len(owners) if asked.is_filtered or len(owners) > 1 else limit + 1
    codes = None if asked.codes is None else sorted(set(asked.codes))
    params = {"at": at, "job": job, "seq": seq, "from": asked.from_ or "-infinity", "kind": asked.kind}
    params |= {"codes": codes, "each": max(each, 2), "limit": limit + 1}
    if asked.job_id is not None:
        return await rows(conn, "outcome/pick_dead_letters_of_job", params | {"job_id": asked.job_id})
    return await rows(conn, "outcome/pick_dead_letters_of_owners", params | {"owners": owners})


async def _whole(conn: Connection, picked: list[Row]) -> list[Row]:
    keys = {"job_ids": [row["job_id"] for row in picked], "seqs": [row["seq"] for row in picked]}
    return await item_rows(conn, "outcome/list_dead_letters", keys) if picked else []


def _start(asked: Asked) -> tuple[datetime, UUID, int]:
    return _NEWEST if asked.to is None else (asked.to, UUID(int=0), -1)


def _place(row: Row) -> tuple[datetime, UUID, int]:
    return row["updated_at"], row["job_id"], row["seq"]
