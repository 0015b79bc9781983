"""The rows of a job that failed, in their own order, with what they hold and all that is wrong with them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.rows import dict_row

from tidemill.domain.block import line_of
from tidemill.domain.page import Page, Walk, mark_of, number
from tidemill.domain.scan import ITEM_BUDGET
from tidemill.store.database import Connection, one_statement
from tidemill.store.json import decode_input
from tidemill.store.statements import sql

WALK = Walk("failures", (number,))
PAGE_BYTES = 4 << 20  # of inputs; a page ends early rather than hold more
NAMES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed row: its number from 1, its line in the file, what it holds now, and its stored error."""

    row: int
    line: int
    input: Any
    error: dict[str, Any]


@one_statement
async def list_failures(
    conn: Connection, job_id: UUID, *, limit: int, after: object = None, codes: Sequence[str] | None = None
) -> Page[Failure]:
    """So many rows and about so many bytes at most. A page may be short, or even empty, and still not be the last.

    With ``codes``, those whose first error is one of these.
    """
    mark = mark_of(job_id, *([] if codes is None else [sorted(codes)]))
    (after_seq,) = (-1,) if after is None else WALK.read(after, mark)
    params = {"job_id": job_id, "after_seq": after_seq, "limit": limit + 1}
    params |= {"codes": None if codes is None else list(codes)}
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("outcome/list_failures"), params | {"budget": ITEM_BUDGET, "bytes": PAGE_BYTES})
        rows = await cursor.fetchall()
    found = [_failure(row) for row in rows[:limit] if not row["is_end"]]
    is_last = not rows or (len(rows) <= limit and rows[-1]["total"] == len(rows) and not rows[-1]["is_end"])
    if is_last:
        return Page(found, None)
    last = rows[:limit][-1]
    return Page(found, WALK.place(mark, last["seq"] - 1 if last["is_end"] else last["seq"]))


@one_statement
async def names(conn: Connection, job_id: UUID) -> list[str]:
    """What the failed rows call their fields."""
    cursor = await conn.execute(sql("outcome/failure_names"), {"job_id": job_id, "most": NAMES_MAX})
    return [row[0] for row in await cursor.fetchall()]


def _failure(row: dict[str, Any]) -> Failure:
    line = line_of(row["seq"] + 1, row["line"], row["first_line"])
    return Failure(row["seq"] + 1, line, decode_input(row["input"]), row["error"] or {})
