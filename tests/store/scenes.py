"""Helpers for tests of races, large jobs and query plans."""

import asyncio
import contextlib
import re
from collections import Counter
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from support import FAILED, RETRY, eventually, rows, settle, take, verdict
from tidemill.core.batch import Lease
from tidemill.core.status import ItemStatus
from tidemill.store import item_records
from tidemill.store.database import Database
from tidemill.store.item_records import read_unsettled_items
from tidemill.store.reprocess_items import ReprocessSelection, reprocess_items
from tidemill.store.statements import make_sql_loader
from tidemill.store.statements import sql as engine_sql

T = TypeVar("T")
AT_ONCE_S = 15.0  # far longer than a statement takes without a lock; also the statement timeout

OWNERS = ("store", "imports", "exports", "distributions", "dispatch", "limits", "watches", "tables")


def sql(name: str) -> bytes:
    """Return a statement of any package."""
    for owner in OWNERS:
        with contextlib.suppress(FileNotFoundError):
            return make_sql_loader(f"tidemill.{owner}")(name)
    raise FileNotFoundError(name)


async def at_once(action: Awaitable[T]) -> T:
    """Run an action while other transactions hold locks, and fail if it waits for one."""
    return await asyncio.wait_for(action, AT_ONCE_S)


async def held_up(db: Database, action: Awaitable[T]) -> "asyncio.Future[T]":
    """Start an action and check that it waits for a lock of another transaction."""
    task = asyncio.ensure_future(action)

    async def waits() -> bool:
        assert not task.done(), f"it did not wait: {task}"
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        return bool(await rows(db, waiting))

    await eventually(waits, AT_ONCE_S)
    return task


async def status_of(db: Database, job_id: UUID, seq: int) -> str | None:
    return (await db.read_snapshot(item_records.read_item_details, job_id, seq))["status"]  # type: ignore[no-any-return]


async def unsettled(db: Database, lease: Lease) -> list[int]:
    """Return the seqs of the items that the holder of this lease would run."""
    return [item.seq for item in await db.run_async_commit(read_unsettled_items, lease)]


async def fail_some(db: Database, job_id: UUID, seqs: Iterable[int], wanted: int = 1_000) -> Lease:
    """Claim a batch and settle it: the given items fail, the others are done."""
    lease, bad = await take(db, job_id, wanted), set(seqs)
    said = [verdict(seq, FAILED if seq in bad else ItemStatus.DONE) for seq in lease.seqs or range(lease.lo, lease.hi)]
    await settle(db, lease, said)
    return lease


async def retry_some(db: Database, job_id: UUID, seqs: Iterable[int], delay: float = 0.0) -> Lease:
    """Claim a batch and settle it: the given items are retried, the others are done."""
    lease, bad = await take(db, job_id), set(seqs)
    said = [
        verdict(seq, RETRY, delay=delay) if seq in bad else verdict(seq)
        for seq in lease.seqs or range(lease.lo, lease.hi)
    ]
    await settle(db, lease, said)
    return lease


async def send_round(db: Database, job_id: UUID, choice: ReprocessSelection | None = None) -> int:
    """Requeue selected items and return their number."""
    taken, _ = await db.run(reprocess_items, job_id, choice or ReprocessSelection())
    return taken


async def expire(db: Database, lease: Lease) -> None:
    """Expire the lease, as if its worker had died."""
    await rows(
        db, "UPDATE tidemill.batch SET lease_until = tidemill.now() - interval '1 s' WHERE id = %s", lease.batch_id
    )


async def batches(db: Database, job_id: UUID, columns: str = "state, lo, hi, seqs, open") -> list[tuple[Any, ...]]:
    return await rows(db, f"SELECT {columns} FROM tidemill.batch WHERE job_id = %s ORDER BY id", job_id)


async def big_job(
    db: Database, n: int, *, size: int = 1_000, settled: int = 0, kind: str = "test", is_known: bool = True
) -> UUID:
    """Create a job of n items in ready ranges. The first items are settled: every tenth failed, the others are done.

    With ``is_known``, the planner has statistics on it.
    """
    job_id: UUID
    [(job_id,)] = await rows(db, "INSERT INTO tidemill.job (kind, ingest_done) VALUES (%s, true) RETURNING id", kind)
    await rows(db, "INSERT INTO tidemill.ingest (job_id, next_seq) VALUES (%s, %s)", job_id, n)
    await rows(
        db,
        "INSERT INTO tidemill.job_tally (job_id, done, failed, codes)"
        " VALUES (%s, %s::int - %s::int / 10, %s::int / 10, jsonb_build_object('test', %s::int / 10))",
        job_id,
        settled,
        settled,
        settled,
        settled,
    )
    await rows(
        db,
        "INSERT INTO tidemill.item (job_id, seq, input, at)"
        " SELECT %s, s, '{\"n\": 1}', tidemill.now() FROM generate_series(0, %s::bigint - 1) s",
        job_id,
        n,
    )
    await rows(
        db,
        "INSERT INTO tidemill.outcome (job_id, seq, owner_id, status, attempts, updated_at, error)"
        " SELECT %s, s, 0, CASE WHEN s %% 10 = 0 THEN 'failed' ELSE 'done' END, 1, tidemill.now(),"
        ' CASE WHEN s %% 10 = 0 THEN \'{"code": "test"}\'::jsonb END FROM generate_series(0, %s::bigint - 1) s',
        job_id,
        settled,
    )
    async with db.connection() as conn:
        los = list(range(settled, n, size))
        place = {"job_id": job_id, "owner_id": 0, "kind": kind, "los": los, "his": [min(lo + size, n) for lo in los]}
        await conn.execute(engine_sql("batch/add_ranges"), place)
        if is_known:
            await conn.execute(b"ANALYZE tidemill.job, tidemill.batch, tidemill.item, tidemill.outcome")
    return job_id


async def plan(db: Database, statement: str, params: dict[str, Any]) -> str:
    """Return the plan of a statement with these values."""
    async with db.connection() as conn:
        cursor = await conn.execute(b"EXPLAIN (COSTS off) " + sql(statement), params, prepare=False)
        return "\n".join(row[0] for row in await cursor.fetchall())


async def prepared_plan(db: Database, statement: str, params: dict[str, Any]) -> str:
    """Return the generic plan of a prepared statement."""
    names: dict[str, int] = {}
    text = re.sub(r"%\((\w+)\)s", lambda m: f"${names.setdefault(m[1], len(names) + 1)}", sql(statement).decode())
    execute = f"EXECUTE asked ({', '.join(f'%({name})s' for name in names)})" if names else "EXECUTE asked"
    async with db.connection() as conn, psycopg.AsyncClientCursor(conn) as cursor:
        await cursor.execute(b"PREPARE asked AS " + text.encode())
        for _ in range(7):
            await cursor.execute(f"EXPLAIN (COSTS off) {execute}".encode(), params)
        shown = "\n".join(row[0] for row in await cursor.fetchall())
        await cursor.execute(b"DEALLOCATE asked")
    return shown


async def whole_scans(db: Database, shown: str) -> set[str]:
    """Return the large tables that a plan scans completely."""
    big = {name for (name,) in await rows(db, "SELECT relname FROM pg_class WHERE reltuples > 1000")}
    return set(re.findall(r"Seq Scan on (\w+)", shown)) & big


async def rows_looked_at(db: Database, statement: str, params: dict[str, Any], *without: str) -> Counter[str]:
    """Run a statement, roll it back, and return the rows it read per table. ``without`` disables planner methods."""
    async with db.connection() as conn, conn.transaction(force_rollback=True):
        for way in without:
            await conn.execute(f"SET LOCAL enable_{way} = off".encode(), prepare=False)
        cursor = await conn.execute(b"EXPLAIN (ANALYZE, FORMAT JSON) " + sql(statement), params, prepare=False)
        row = await cursor.fetchone()
    assert row is not None
    seen: Counter[str] = Counter()
    nodes = [row[0][0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        if "Relation Name" in node and node["Node Type"] != "ModifyTable":
            table = node["Relation Name"].split("_")[0]
            each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            seen[table] += round(each * node["Actual Loops"])
    return seen
