"""An undo of a large upsert that kill -9 interrupts twice: the table is compared with what it must be, then redone."""

import os
import signal
import subprocess
from uuid import UUID

import pytest

from imports.scenes import Scene
from imports.test_undo import Sizes, counts, previewed, undo_import
from support import Workers, assert_sound, closed, eventually, job_of
from tidemill.store import operation_records
from tidemill.store.operation_records import BulkOperation

COLUMNS = "id int PRIMARY KEY, mail text UNIQUE, price numeric(12,4), at timestamptz, tags text[], doc jsonb"
BODY = "BEGIN PERFORM pg_sleep(seconds) FROM public.pace; RETURN NULL; END"
TABLE = (
    f"CREATE TABLE t ({COLUMNS})",
    "CREATE TABLE child (t_id int REFERENCES t ON DELETE CASCADE)",
    "CREATE TABLE pace AS SELECT 0.0 AS seconds",
    f"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ {BODY} $$",
    "CREATE TRIGGER slow AFTER UPDATE OR DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION slow()",
)
SLOW_S = 0.3


def file_of(sizes: Sizes) -> str:
    """Existing rows to update, and new rows."""
    first = sizes.table - sizes.updated
    lines = (f"{n},new{n}@x,{n % 97}.25" for n in range(first, first + sizes.imported))
    return "id,mail,price\n" + "\n".join(lines) + "\n"


async def difference(scene: Scene, one: str, other: str) -> int:
    """Return the number of rows that only one of two queries has."""
    both = f"({one} EXCEPT {other}) UNION ALL ({other} EXCEPT {one})"
    return int((await scene.rows(f"SELECT count(*) FROM ({both}) x"))[0][0])


@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(table=5_000, imported=3_000, updated=2_000, edited=50, referenced=10),
        pytest.param(
            Sizes(table=500_000, imported=300_000, updated=200_000, edited=500, referenced=50), marks=pytest.mark.full
        ),
    ],
    ids=["small", "full"],
)
async def test_undo_killed_twice_restores_table_exactly_and_can_be_redone(
    scene: Scene, workers: Workers, sizes: Sizes
) -> None:
    await scene.table(
        *TABLE,
        "INSERT INTO t SELECT n, 'old' || n || '@x', n / 3.0, '2026-01-01'::timestamptz + n * interval '1 minute',"
        f" ARRAY['a', NULL, 'b,' || n], jsonb_build_object('n', n / 7.0) FROM generate_series(0, {sizes.table} - 1) n",
        "CREATE TABLE before AS TABLE t",
    )
    workers.app("")
    batch_rows = max(500, sizes.imported // 30)
    process = workers.start(processes=2, import_batch_rows=batch_rows)
    job_id = await scene.submit(file_of(sizes), "t", mode="upsert", undo=True)
    job = await closed(scene.db, job_id, 600.0)
    assert await scene.effects(job) == (sizes.imported - sizes.updated, sizes.updated, 0)
    first, half = sizes.table - sizes.updated, sizes.edited // 2
    await scene.table(  # half of the edited rows were updated, half inserted; the referenced ones were inserted
        f"UPDATE t SET price = -1 WHERE id >= {sizes.table - half} AND id < {sizes.table + half}",
        f"INSERT INTO child SELECT n FROM generate_series({first + sizes.imported - sizes.referenced},"
        f" {first + sizes.imported - 1}) n",
        "CREATE TABLE after AS TABLE t",
        f"UPDATE pace SET seconds = {SLOW_S}",
    )
    expected = (sizes.imported - sizes.edited - sizes.referenced, sizes.edited, sizes.referenced)
    assert await previewed(scene, job) == expected
    operation = await undo_import(scene, job, timeout_s=0)
    for _ in range(2):
        await reversed_further(scene, operation.id)
        kill(process)
        process = workers.start(processes=2, import_batch_rows=batch_rows)
    await scene.table("UPDATE pace SET seconds = 0")
    await ended(scene, operation.id)
    assert await counts(scene, job, operation) == expected
    kept = "SELECT a.* FROM after a WHERE price = -1 OR id IN (SELECT t_id FROM child)"
    rest = "SELECT b.* FROM before b WHERE id NOT IN (SELECT id FROM after WHERE price = -1)"
    assert await difference(scene, "TABLE t", f"({kept} UNION ALL {rest})") == 0
    assert await scene.count("child") == sizes.referenced
    assert (await previewed(scene, job, redo=True))[0] == expected[0]
    redone = await undo_import(scene, job, redo=True, timeout_s=0)
    await ended(scene, redone.id)
    assert await counts(scene, job, redone) == (expected[0], 0, 0)
    assert await difference(scene, "TABLE t", "TABLE after") == 0
    await assert_sound(scene.db)
    assert (await job_of(scene.db, job.id)).counts == job.counts


def kill(process: "subprocess.Popen[bytes]") -> None:
    os.killpg(process.pid, signal.SIGKILL)


async def get_operation(scene: Scene, operation_id: UUID) -> BulkOperation:
    return await scene.db.run(operation_records.get_operation, operation_id)


async def reversed_further(scene: Scene, operation_id: UUID) -> None:
    """Wait until more rows are reversed than before."""
    before = await get_operation(scene, operation_id)

    async def further() -> bool:
        return (await get_operation(scene, operation_id)).items > before.items

    await eventually(further, 60)
    assert (await get_operation(scene, operation_id)).state == "running", "too quick to be disturbed"


async def ended(scene: Scene, operation_id: UUID) -> None:
    async def is_over() -> bool:
        return (await get_operation(scene, operation_id)).state != "running"

    await eventually(is_over, 600)
