"""Insert a large job that is partly processed. Its rows satisfy all invariants of the engine."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from tidemill.store import job_lifecycle
from tidemill.store.database import Connection, Database
from tidemill.store.statements import make_sql_loader
from tidemill.store.statements import sql as engine_sql

sql = make_sql_loader("tidemill_bench")


@dataclass(frozen=True, slots=True)
class BigJobShape:
    """The number of items, the size of a range, and the ends of the settled, leased, begun and cancelled ranges."""

    items: int
    size: int
    settled: int
    leased: int
    begun: int
    cancelled: int


def plan_job_shape(items: int) -> BigJobShape:
    """Return a shape with 90 % settled ranges; the others are leased, released half done, cancelled or not started."""
    size = max(10, min(1_000, items // 100))
    ranges = -(-items // size)
    settled = ranges * 90 // 100
    leased = settled + max(1, min(40, ranges // 50))
    begun = leased + max(1, ranges // 100)
    return BigJobShape(items, size, settled, leased, begun, begun + max(1, ranges * 3 // 100))


async def create_big_job(db: Database, owner_id: int, kind: str, items: int) -> UUID:
    """Insert the job and vacuum its tables; return its id."""
    async with db.transaction(bounded=False) as conn:
        job_id = await _insert_big_job(conn, owner_id, kind, plan_job_shape(items))
    async with db.connection() as conn:
        await conn.execute(sql("vacuum"), prepare=False)
    return job_id


async def _insert_big_job(conn: Connection, owner_id: int, kind: str, shape: BigJobShape) -> UUID:
    await conn.execute(engine_sql("partition/ensure"), {"days": 0})
    cursor = await conn.execute(sql("add_job"), {"owner_id": owner_id, "kind": kind})
    row = await cursor.fetchone()
    assert row is not None
    job_id: UUID = row[0]
    await conn.execute(engine_sql("ingest/add"), {"job_id": job_id, "next_seq": shape.items, "fetch_pending": False})
    params: dict[str, Any] = {name: getattr(shape, name) for name in BigJobShape.__slots__} | {"job_id": job_id}
    for what in ("items", "outcomes", "ranges", "lists"):
        await conn.execute(sql(f"add_{what}"), params)
    await job_lifecycle.fold_tally(conn, job_id)
    return job_id
