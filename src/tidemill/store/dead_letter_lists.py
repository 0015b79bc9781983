"""Lists failed items across jobs, newest first."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from tidemill.core.list_pages import (
    PAGE_BATCH_BUDGET,
    ListOrder,
    Page,
    fingerprint_filters,
    parse_number,
    parse_timestamp,
    parse_uuid,
)
from tidemill.store.database import Connection
from tidemill.store.job_lists import load_item_list_scope
from tidemill.store.statements import RowDict, fetch_item_rows, fetch_rows, sql

DEAD_LETTERS_ORDER = ListOrder("dead_letters", (parse_number, parse_timestamp, parse_uuid, parse_number))
DEAD_LETTER_OWNERS_PER_PAGE = 50  # each owner costs an index lookup in every weekly partition
MAX_DEAD_LETTER_CAUSES = 1_000
_NEWEST_POSITION = (datetime.max.replace(tzinfo=UTC), UUID(int=0), -1)


@dataclass(frozen=True, slots=True)
class DeadLetterListRequest:
    """Filters for dead letters: by owner, job, kind, error code and time. None means no filter."""

    owner_id: int | None = None
    kind: str | None = None
    codes: Sequence[str] | None = None
    job_id: UUID | None = None
    from_: datetime | None = None
    to: datetime | None = None

    @property
    def fingerprint(self) -> str:
        codes = None if self.codes is None else sorted(set(self.codes))
        return fingerprint_filters(self.owner_id, self.kind, codes, self.job_id, self.from_, self.to)

    @property
    def is_filtered(self) -> bool:
        return self.kind is not None or self.codes is not None


async def list_dead_letters(
    conn: Connection, request: DeadLetterListRequest, *, limit: int, after: object = None
) -> Page[RowDict]:
    """Return a page of dead letters, newest first. With more than 50 owners, the order is by groups of 50 owners."""
    first, *cursor = (
        (-1, *_get_start_position(request))
        if after is None
        else DEAD_LETTERS_ORDER.parse_position(after, request.fingerprint)
    )
    owners = await _list_owner_ids(conn, request, first)
    rows = await _pick_dead_letters(conn, request, owners, cursor, limit) if owners else []
    ends = [row for row in rows if row["is_end"]]
    picked = [row for row in rows if not row["is_end"]]
    items = await _fetch_dead_letters(conn, picked[:limit])
    if len(picked) > limit:
        return Page(
            items, DEAD_LETTERS_ORDER.build_position(request.fingerprint, first, *_get_position(picked[limit - 1]))
        )
    if ends:
        return Page(items, DEAD_LETTERS_ORDER.build_position(request.fingerprint, first, *_get_position(ends[0])))
    more = len(owners) == DEAD_LETTER_OWNERS_PER_PAGE
    return Page(
        items,
        DEAD_LETTERS_ORDER.build_position(request.fingerprint, owners[-1] + 1, *_get_start_position(request))
        if more
        else None,
    )


async def list_dead_letter_causes(
    conn: Connection, owner_id: int | None, *, kind: str | None = None, job_id: UUID | None = None
) -> list[RowDict]:
    """Return the error codes of dead letters with the number of items and jobs and the time of the last change."""
    if job_id is not None:
        await load_item_list_scope(conn, job_id, owner_id)
    params = {"owner_id": owner_id, "kind": kind, "job_id": job_id, "limit": MAX_DEAD_LETTER_CAUSES}
    return await fetch_rows(conn, sql("job/causes"), params)


async def _list_owner_ids(conn: Connection, asked: DeadLetterListRequest, first: int) -> list[int]:
    if asked.job_id is not None:
        return [(await load_item_list_scope(conn, asked.job_id, asked.owner_id)).owner_id]
    if asked.owner_id is not None:
        return [asked.owner_id]
    rows = await fetch_rows(
        conn, sql("outcome/owners_of_dead_letters"), {"owner_id": first, "limit": DEAD_LETTER_OWNERS_PER_PAGE}
    )
    return [row["owner_id"] for row in rows]


async def _pick_dead_letters(
    conn: Connection, asked: DeadLetterListRequest, owners: list[int], place: Sequence[Any], limit: int
) -> list[RowDict]:
    at, job, seq = place
    each = PAGE_BATCH_BUDGET // len(owners) if asked.is_filtered or len(owners) > 1 else limit + 1
    codes = None if asked.codes is None else sorted(set(asked.codes))
    params = {"at": at, "job": job, "seq": seq, "from": asked.from_ or "-infinity", "kind": asked.kind}
    params |= {"codes": codes, "each": max(each, 2), "limit": limit + 1}
    if asked.job_id is not None:
        return await fetch_rows(conn, sql("outcome/pick_dead_letters_of_job"), params | {"job_id": asked.job_id})
    return await fetch_rows(conn, sql("outcome/pick_dead_letters_of_owners"), params | {"owners": owners})


async def _fetch_dead_letters(conn: Connection, picked: list[RowDict]) -> list[RowDict]:
    keys = {"job_ids": [row["job_id"] for row in picked], "seqs": [row["seq"] for row in picked]}
    return await fetch_item_rows(conn, sql("outcome/list_dead_letters"), keys) if picked else []


def _get_start_position(asked: DeadLetterListRequest) -> tuple[datetime, UUID, int]:
    return _NEWEST_POSITION if asked.to is None else (asked.to, UUID(int=0), -1)


def _get_position(row: RowDict) -> tuple[datetime, UUID, int]:
    return row["updated_at"], row["job_id"], row["seq"]
