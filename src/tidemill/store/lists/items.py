"""A job's items: which walk goes through those that are asked for."""

from collections.abc import Sequence
from uuid import UUID

from tidemill.domain.errors import InvalidInput, UnknownJob
from tidemill.domain.page import MAX_NUMBER, Page, Walk, mark_of, walk_of
from tidemill.domain.status import ItemStatus
from tidemill.store.database import Connection, one_snapshot
from tidemill.store.lists import exceptions, open_items, sequence
from tidemill.store.lists.exceptions import EXCEPTIONS
from tidemill.store.lists.fetch import Row, rows
from tidemill.store.lists.open_items import OPEN, Asked


@one_snapshot
async def list_items(
    conn: Connection,
    job_id: UUID,
    statuses: Sequence[ItemStatus] = (),
    *,
    limit: int,
    after: object = None,
    seq: int | None = None,
    codes: Sequence[str] | None = None,
) -> Page[Row]:
    """A page of items, in the order that is quick for what is asked for.

    Open ones by how long they have been so, exceptions by when they came to be, everything else by seq; and any
    of them by seq, from ``seq`` on. The place where an earlier page ended says which of these it was.
    """
    if codes is not None and set(statuses) - {ItemStatus.FAILED}:
        raise InvalidInput("error codes are asked for with status failed, or with none")
    job = await extent(conn, job_id)
    mark = mark_of(job_id, sorted(set(statuses)), None if codes is None else sorted(set(codes)))
    walk = _natural(statuses, codes) if after is None else walk_of(after, _possible(statuses, codes))
    if after is None and seq is not None:
        if codes is not None:
            raise InvalidInput("error codes and seq do not go together")
        walk = sequence.WALK
    if walk is sequence.WALK:
        start = _start(seq)
        return await sequence.list_by_seq(conn, job, statuses, mark, limit=limit, start=start, after=after)
    if walk is open_items.WALK:
        page = await open_items.list_open(conn, Asked(statuses, job_id), limit=limit, after=after)
        for item in page.items:
            del item["is_due"], item["batch_id"]
        return page
    if walk is exceptions.CANCELLED:
        return await exceptions.list_cancelled(conn, job_id, mark, limit=limit, after=after)
    if codes is not None:
        return await exceptions.list_codes(conn, job_id, codes, mark, limit=limit, after=after)
    return await exceptions.list_exceptions(conn, job_id, statuses, mark, limit=limit, after=after)


async def extent(conn: Connection, job_id: UUID, owner_id: int | None = None) -> Row:
    """How far a job reaches, and of which kind it is. Somebody else's is as unknown as one that never was."""
    found = await rows(conn, "job/extent", {"job_id": job_id})
    if not found or owner_id not in (None, found[0]["owner_id"]):
        raise UnknownJob(f"there is no job {job_id}")
    return found[0]


def _natural(statuses: Sequence[ItemStatus], codes: Sequence[str] | None) -> Walk:
    asked = set(statuses)
    if codes is not None or (asked and asked <= set(EXCEPTIONS)):
        return exceptions.WALK
    return open_items.WALK if asked and asked <= set(OPEN) else sequence.WALK


def _possible(statuses: Sequence[ItemStatus], codes: Sequence[str] | None) -> list[Walk]:
    natural = _natural(statuses, codes)
    walks = [natural] if codes is not None else [natural, sequence.WALK]
    if natural is exceptions.WALK and ItemStatus.CANCELLED in statuses:
        walks.append(exceptions.CANCELLED)
    return walks


def _start(seq: int | None) -> int:
    if seq is not None and not 0 <= seq <= MAX_NUMBER:
        raise InvalidInput(f"there is no item {seq}: seq begins at 0")
    return seq or 0
