"""Partitions of item and outcome: made ahead, dropped when every job in them is old."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg import sql as syntax
from psycopg.rows import dict_row

from tidemill.store.database import Connection, Database
from tidemill.store.migrate import WEEKS_AHEAD
from tidemill.store.statements import sql


@dataclass(frozen=True, slots=True)
class Week:
    name: str
    lo: UUID
    hi: UUID
    partitions: tuple[str, ...]


async def make_ahead(conn: Connection) -> int:
    """This week's partitions and some weeks' more; how many were missing."""
    made = 0
    for week in range(WEEKS_AHEAD + 1):
        cursor = await conn.execute(sql("partition/ensure"), {"days": 7 * week})
        row = await cursor.fetchone()
        made += bool(row and row[0])
    return made


async def weeks(conn: Connection) -> list[Week]:
    rows = await _rows(conn)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["week"], []).append(row)
    return [Week(week, r[0]["lo"], r[0]["hi"], tuple(x["name"] for x in r)) for week, r in sorted(found.items())]


async def purge(db: Database, age_seconds: float) -> list[str]:
    """Drop every week whose jobs are all closed longer ago than that; the names of the weeks."""
    dropped = []
    async with db.connection() as conn:
        candidates = await weeks(conn)
    for week in candidates:
        if await db.run(_condemn, week, age_seconds):
            await _drop(db, week.partitions)
            dropped.append(week.name)
    await _drop_orphans(db)
    return dropped


async def _rows(conn: Connection) -> list[dict[str, Any]]:
    async with conn.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(sql("partition/list"))
        return await cursor.fetchall()


async def _condemn(conn: Connection, week: Week, age: float) -> bool:
    """Mark a week's jobs as purged, if all of them are old. Locked, so that none is reopened meanwhile."""
    cursor = await conn.execute(sql("partition/is_past"), {"hi": week.hi, "age": age})
    row = await cursor.fetchone()
    if row is None or not row[0]:
        return False
    bounds = {"lo": week.lo, "hi": week.hi}
    cursor = await conn.execute(sql("partition/lock_jobs"), bounds | {"age": age})
    if not all(old for _, old in await cursor.fetchall()):
        return False
    await conn.execute(sql("file/condemn"), bounds)
    await conn.execute(sql("partition/mark_purged"), bounds)
    await conn.execute(sql("partition/drop_batches"), bounds)
    await conn.execute(sql("sample/purge"), bounds)
    return True


async def _drop(db: Database, names: tuple[str, ...]) -> None:
    """Detach concurrently, then drop: neither waits for readers while others wait behind it."""
    async with db.connection() as conn:
        for name in names:
            parent = syntax.Identifier("tidemill", name.rsplit("_", 1)[0])
            part = syntax.Identifier("tidemill", name)
            try:
                await conn.execute(
                    syntax.SQL("ALTER TABLE {} DETACH PARTITION {} CONCURRENTLY").format(parent, part),
                    prepare=False,
                )
            except psycopg.errors.ObjectNotInPrerequisiteState:  # an earlier detach was interrupted
                await conn.execute(
                    syntax.SQL("ALTER TABLE {} DETACH PARTITION {} FINALIZE").format(parent, part),
                    prepare=False,
                )
            await _drop_table(conn, name)


async def _drop_orphans(db: Database) -> None:
    async with db.connection() as conn:
        cursor = await conn.execute(sql("partition/orphans"))
        for (name,) in await cursor.fetchall():
            await _drop_table(conn, name)


async def _drop_table(conn: Connection, name: str) -> None:
    drop = syntax.SQL("BEGIN; SET LOCAL lock_timeout = '5s'; DROP TABLE {}; COMMIT")
    await conn.execute(drop.format(syntax.Identifier("tidemill", name)), prepare=False)
