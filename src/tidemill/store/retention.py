"""Removes unneeded files, deleted jobs and old partitions; creates partitions in advance."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import psycopg
from psycopg import sql as syntax

from tidemill.core.errors import Conflict, UnknownJob
from tidemill.failpoints import failpoint
from tidemill.store.database import Connection, Database
from tidemill.store.migrate import PARTITION_WEEKS_AHEAD, check_table_owner
from tidemill.store.statements import fetch_records, sql

UNCLAIMED_FILE_TTL_H = 168  # a file without a job is kept for a week


async def list_unneeded_files(conn: Connection, after: str, limit: int) -> list[str]:
    """Return a page of unneeded files, ordered by name."""
    cursor = await conn.execute(sql("file/list_unneeded"), {"after": after, "limit": limit})
    return [row[0] for row in await cursor.fetchall()]


async def delete_unneeded_file_records(conn: Connection, files: Sequence[str]) -> None:
    """Delete the records of removed files."""
    await conn.execute(sql("file/forget"), {"files": list(files)})


async def is_file_of_owner(conn: Connection, file_id: str, owner_id: int | None) -> bool:
    """Return whether a stored file belongs to a job of this owner; for None, to any job."""
    cursor = await conn.execute(sql("file/belongs_to"), {"file_id": file_id, "owner_id": owner_id})
    row = await cursor.fetchone()
    return row is not None and bool(row[0])


async def register_unclaimed_file(conn: Connection, file_id: str) -> None:
    """Register a file before it is stored, so that it is removed if no job uses it."""
    await set_file_expiry(conn, file_id, None, UNCLAIMED_FILE_TTL_H)


async def clear_file_expiry(conn: Connection, file_id: str) -> None:
    """Clear the expiry of a file."""
    await conn.execute(sql("file/keep"), {"file_id": file_id})


async def set_file_expiry(conn: Connection, file_id: str, made_by: UUID | None, hours: int) -> datetime:
    """Set when a file expires and return that time. Deleting the job ``made_by`` removes it earlier."""
    cursor = await conn.execute(sql("file/expire"), {"file_id": file_id, "made_by": made_by, "hours": hours})
    row = await cursor.fetchone()
    assert row is not None  # noqa: S101  INSERT … RETURNING
    return row[0]  # type: ignore[no-any-return]


DELETE_CHUNK_ROWS = 20_000
DELETE_CHUNK_UNDO_RECORDS = 50  # each has the images of up to one batch of rows
DELETE_LOCK_TIMEOUT_S = 10  # for workers that write to the job: they stop within about 2 s


async def delete_job(conn: Connection, job_id: UUID) -> None:
    """Delete a job with its batches and ingest state. Maintenance deletes its items and outcomes in chunks.

    Raises:
        Conflict: A worker did not end its transaction on the job in time.
    """
    await conn.execute(b"SET LOCAL lock_timeout = %d" % (DELETE_LOCK_TIMEOUT_S * 1000), prepare=False)
    cursor = await conn.execute(sql("job/lock_for_delete"), {"job_id": job_id})
    if await cursor.fetchone() is None:
        raise UnknownJob(f'Unknown job "{job_id}"')
    job = {"job_id": job_id}
    await conn.execute(sql("tally/remove"), job)
    await conn.execute(sql("ingest/remove"), job)
    try:
        # A flush that this statement waited for may have added a list after its snapshot: repeat until none is left.
        while (await conn.execute(sql("batch/remove"), job)).rowcount:
            pass
    except psycopg.errors.LockNotAvailable as error:
        raise Conflict("A worker is still writing rows of the job. Try again in a few seconds.") from error
    for table in ("item_fix", "activity", "sample", "repeat", "effect", "delivery"):
        await conn.execute(sql(f"{table}/remove"), job)
    await conn.execute(sql("outbox/remove_job"), job)
    await conn.execute(sql("file/condemn_one"), job)
    await conn.execute(sql("deleted_job/add"), job)
    await conn.execute(sql("job/remove"), job)
    failpoint("delete.job_removed")


async def list_deleted_jobs(conn: Connection) -> list[UUID]:
    cursor = await conn.execute(sql("deleted_job/list"))
    return [row[0] for row in await cursor.fetchall()]


async def delete_row_chunk_of_deleted_job(conn: Connection, job_id: UUID) -> int:
    """Delete a chunk of a deleted job's items and outcomes. Return the number of rows; 0 means nothing is left."""
    removed = 0
    for table in ("outcome", "item"):
        cursor = await conn.execute(sql(f"{table}/remove_chunk"), {"job_id": job_id, "limit": DELETE_CHUNK_ROWS})
        removed += cursor.rowcount
    for name, limit in (("remove_chunk", DELETE_CHUNK_UNDO_RECORDS), ("remove_exceptions", DELETE_CHUNK_ROWS)):
        cursor = await conn.execute(sql(f"undo_log/{name}"), {"job_id": job_id, "limit": limit})
        removed += cursor.rowcount
    failpoint("delete.chunk_removed")
    if not removed:
        await conn.execute(sql("deleted_job/remove"), {"job_id": job_id})
    return removed


@dataclass(frozen=True, slots=True)
class PartitionWeek:
    name: str
    lo: UUID
    hi: UUID
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition of one table: the range of job ids, and whether a detach was interrupted."""

    name: str
    week: str
    parent: str
    lo: UUID
    hi: UUID
    detaching: bool


async def create_missing_partitions(conn: Connection) -> int:
    """Create the partitions of this week and the next weeks. Return the number of weeks that were missing."""
    made = 0
    for week in range(PARTITION_WEEKS_AHEAD + 1):
        cursor = await conn.execute(sql("partition/ensure"), {"days": 7 * week})
        row = await cursor.fetchone()
        made += bool(row and row[0])
    return made


async def list_partition_weeks(conn: Connection) -> list[PartitionWeek]:
    by_week: dict[str, list[_Partition]] = {}
    for partition in await _list_partitions(conn):
        by_week.setdefault(partition.week, []).append(partition)
    return [
        PartitionWeek(week, parts[0].lo, parts[0].hi, tuple(part.name for part in parts))
        for week, parts in sorted(by_week.items())
    ]


async def purge_old_weeks(db: Database, age_seconds: float) -> list[str]:
    """Drop the partitions of every week whose jobs were all closed at least ``age_seconds`` ago. Return the weeks.

    Raises Unavailable if the role of the connection does not own the tables.
    """
    dropped = []
    async with db.connection() as conn:
        await check_table_owner(conn)
        candidates = await list_partition_weeks(conn)
    for week in candidates:
        if await db.run(_mark_week_purged_if_old, week, age_seconds):
            await _drop_partitions(db, week.partitions)
            dropped.append(week.name)
    await _drop_detached_partitions(db)
    while await db.run(_delete_undo_chunk_of_purged_jobs):
        pass
    return dropped


async def _delete_undo_chunk_of_purged_jobs(conn: Connection) -> int:
    """Delete a chunk of what undos of purged jobs need. Return the number of rows; 0 means that nothing is left."""
    removed = 0
    for name, limit in (("purge", DELETE_CHUNK_UNDO_RECORDS), ("purge_exceptions", DELETE_CHUNK_ROWS)):
        removed += (await conn.execute(sql(f"undo_log/{name}"), {"limit": limit})).rowcount
    return removed


async def _list_partitions(conn: Connection) -> list[_Partition]:
    return await fetch_records(conn, _Partition, sql("partition/list"), {})


async def _mark_week_purged_if_old(conn: Connection, week: PartitionWeek, age: float) -> bool:
    """Mark a week's jobs as purged if all of them are old. Locks them, so that none is reopened meanwhile."""
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
    failpoint("purge.rows_deleted")
    return True


async def _drop_partitions(db: Database, names: tuple[str, ...]) -> None:
    """Detach partitions concurrently, then drop them, so that no query has to wait."""
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
            failpoint("purge.partition_detached")
            await _drop_table(conn, name)


async def _drop_detached_partitions(db: Database) -> None:
    async with db.connection() as conn:
        cursor = await conn.execute(sql("partition/orphans"))
        for (name,) in await cursor.fetchall():
            await _drop_table(conn, name)


async def _drop_table(conn: Connection, name: str) -> None:
    drop = syntax.SQL("BEGIN; SET LOCAL lock_timeout = '5s'; DROP TABLE {}; COMMIT")
    await conn.execute(drop.format(syntax.Identifier("tidemill", name)), prepare=False)
