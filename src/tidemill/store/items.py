"""Reading the unsettled items of a batch."""

from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec
from psycopg.types.json import set_json_loads

from tidemill.domain.batch import BATCH_BYTES, Lease
from tidemill.domain.item import Item
from tidemill.store.database import Connection, relaxed
from tidemill.store.json import decode, decode_exactly
from tidemill.store.statements import sql


@relaxed
async def read_whole(conn: Connection, lease: Lease, *, exact: bool = False) -> list[Item]:
    """As ``read``; a range that nobody has touched comes as one value: no row of it passes through the driver."""
    if not lease.is_virgin:
        return await read(conn, lease, exact=exact)
    params = {"job_id": lease.job_id, "lo": lease.lo, "hi": lease.hi}
    cursor = await conn.execute(sql("item/read_together"), params)
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  an aggregate
    try:
        inputs = (decode_exactly if exact else decode)(row[0])
    except msgspec.DecodeError:  # some input is JSON to PostgreSQL and not to us: one by one it is found out which
        return await read(conn, lease, exact=exact)
    if len(inputs) != lease.open:
        return await read(conn, lease, exact=exact)
    items = list(map(Item, repeat(lease.job_id), range(lease.lo, lease.hi), inputs))
    for seq, defect in (row[1] or {}).items():
        items[int(seq) - lease.lo].defect = defect
    return items


@relaxed
async def read(conn: Connection, lease: Lease, *, exact: bool = False) -> list[Item]:
    """The items of a leased batch that are to be run now, in order of seq; ``exact``, with fractions as Decimal."""
    params: dict[str, Any] = {"job_id": lease.job_id, "lo": lease.lo, "hi": lease.hi}
    if lease.seqs is not None:
        name = "item/read_list"
        params = {"job_id": lease.job_id, "seqs": list(lease.seqs), "bytes": BATCH_BYTES}
    else:
        name = "item/read_virgin" if lease.is_virgin else "item/read_unsettled"
    cursor = conn.cursor(binary=True)
    if exact:
        set_json_loads(decode_exactly, cursor)
    await cursor.execute(sql(name), params)
    job_id = lease.job_id
    return [Item(job_id, *row) for row in await cursor.fetchall()]


async def inputs(conn: Connection, job_id: UUID, lo: int, hi: int) -> list[bytes]:
    """The inputs of a job from ``lo`` to before ``hi``, as they are stored."""
    cursor = conn.cursor(binary=True)
    await cursor.execute(sql("item/inputs"), {"job_id": job_id, "lo": lo, "hi": hi})
    return [row[0] for row in await cursor.fetchall()]
