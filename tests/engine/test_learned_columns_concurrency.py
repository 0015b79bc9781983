"""Tests of learned columns with concurrent workers, locks, deletes and crashes."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from store.scenes import at_once, held_up
from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows, take, until
from support.result_exports import columns_of
from tidemill import Item, Mill
from tidemill.core.errors import UnknownJob
from tidemill.engine.learned_columns import LearnedColumns, LearnedColumnsCache
from tidemill.jobs import job_control
from tidemill.jobs.queries import get_grid_columns
from tidemill.store import job_records
from tidemill.store.database import Connection, Database
from tidemill.store.jsonb import encode_json
from tidemill.testing import drain


async def test_two_processes_adding_different_columns_keep_both(db: Database) -> None:
    job_id = await add_job(db, 1)
    async with db.transaction() as conn:
        await job_records.add_result_columns(conn, job_id, ["a", "b"])
        other = await held_up(db, db.run_async_commit(job_records.add_result_columns, job_id, ["c", "b"]))
    assert await at_once(other) == ["a", "b", "c"]
    assert await columns_of(db, job_id) == ["a", "b", "c"]


async def test_concurrent_column_updates_lose_and_duplicate_nothing(db: Database) -> None:
    job_id = await add_job(db, 1)
    asked = [[f"c{n}", f"c{(n * 7) % 20}", "all"] for n in range(20)]
    await asyncio.gather(
        *(db.run_async_commit(job_records.add_result_columns, job_id, list(dict.fromkeys(names))) for names in asked)
    )
    assert sorted(await columns_of(db, job_id)) == sorted({name for names in asked for name in names})


async def test_columns_of_deleted_job_are_discarded(db: Database) -> None:
    job_id = await add_job(db, 10)
    columns = LearnedColumnsCache().get_for_lease(await take(db, job_id))
    await job_control.delete_job(db, job_id)
    columns.learn_from_result({"a": 1}, b'{"a":1}')
    await columns.store_new_columns(db)
    assert await db.run_async_commit(job_records.add_result_columns, job_id, ["b"]) is None
    with pytest.raises(UnknownJob):
        await get_grid_columns(db, job_id)


async def test_stored_columns_are_not_written_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, asked = await add_job(db, 1), []
    learn = job_records.add_result_columns

    async def counting(conn: Connection, job_id: UUID, names: list[str]) -> list[str] | None:
        asked.append(names)
        return await learn(conn, job_id, names)

    monkeypatch.setattr(job_records, "add_result_columns", counting)
    columns = LearnedColumns(job_id)
    for n in range(100):
        for result in ({"a": n, "b": n}, [n], n):
            columns.learn_from_result(result, encode_json(result))
        await columns.store_new_columns(db)
    assert asked == [["a", "b", "result"]]


async def test_columns_stored_by_other_process_are_cached_after_one_query(db: Database) -> None:
    job_id = await add_job(db, 1)
    await db.run_async_commit(job_records.add_result_columns, job_id, ["a", "b", "c"])
    columns = LearnedColumns(job_id)
    columns.learn_from_result({"c": 1}, b'{"c":1}')
    await columns.store_new_columns(db)
    columns.learn_from_result({"b": 1, "a": 1}, b'{"b":1,"a":1}')
    assert not columns._fresh


async def test_running_batch_does_not_deadlock_with_delete_of_its_job(mill: Mill, db: Database) -> None:
    """A delete locks the job and waits for the batch; the batch's handler must not wait for the job."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    @mill.batch_handler("test")
    async def run(items: list[Item], conn: Connection) -> list[dict[str, int]]:
        reached.set()
        await until(go_on)
        return [{"a": 1} for _ in items]

    job_id = await mill.submit_async("test", [1])
    draining = asyncio.create_task(drain(mill, db=db))
    await until(reached)
    deleting = await held_up(db, job_control.delete_job(db, job_id))
    go_on.set()
    await asyncio.wait_for(deleting, 10)
    await asyncio.wait_for(draining, 10)
    await assert_sound(db)


async def test_columns_blocked_by_job_lock_are_stored_after_batch(mill: Mill, db: Database) -> None:
    locked, go_on = asyncio.Event(), asyncio.Event()

    @mill.batch_handler("test")
    async def run(items: list[Item], conn: Connection) -> list[dict[str, int]]:
        locked.set()
        await until(go_on)
        return [{"a": 1} for _ in items]

    job_id = await mill.submit_async("test", [1])
    draining = asyncio.create_task(drain(mill, db=db))
    await until(locked)
    async with db.transaction() as conn:
        await conn.execute(b"SELECT 1 FROM tidemill.job WHERE id = %s FOR NO KEY UPDATE", [job_id])
        go_on.set()

        async def batch_is_done() -> bool:
            return (await job_of(db, job_id)).counts.done == 1

        await eventually(batch_is_done)
        assert await columns_of(db, job_id) == []
    await draining
    assert await columns_of(db, job_id) == ["a"]


async def test_results_salvaged_from_crashed_child_have_columns(workers: Workers, db: Database, tmp_path: Path) -> None:
    workers.app("""
        import signal

        @mill.handler("test", concurrency=1)
        async def run(item):
            if item.seq == 3 and not os.path.exists("killed"):
                open("killed", "x").close()
                os.kill(os.getpid(), signal.SIGKILL)
            return {"b": 1, "a": 2} if item.seq < 3 else None
    """)
    workers.start(flush_interval_ms=60_000, worker_lanes=1)
    job_id = await add_job(db, 5)
    await closed(db, job_id)
    assert (tmp_path / "killed").exists()
    assert await fates(db, job_id) == {("done", None, 1): 5}
    assert await columns_of(db, job_id) == ["b", "a"]


async def test_every_stored_result_has_columns_while_children_are_killed(
    workers: Workers, db: Database, tmp_path: Path
) -> None:
    # Slow until the last child was killed, however long the start of another takes.
    workers.app("""
        @mill.handler("test", concurrency=5)
        async def run(item):
            await asyncio.sleep(0.005 if os.path.exists("killed") else 0.1)
            return {f"c{item.seq // 50}": item.seq}
    """)
    process = workers.start(processes=2, flush_interval_ms=50, batch_size=5, claim_max=20)
    job_id = await add_job(db, 2_000)
    for _ in range(3):

        async def goes_on(seen: int = (await job_of(db, job_id)).counts.done) -> bool:
            return (await job_of(db, job_id)).counts.done > seen and len(workers.children(process)) == 2

        await eventually(goes_on)
        await assert_every_key_has_a_column(db, job_id)
        with contextlib.suppress(ProcessLookupError):  # a child that died before may still have been counted
            os.kill(workers.children(process)[0], signal.SIGKILL)
    (tmp_path / "killed").touch()
    await closed(db, job_id)
    await assert_every_key_has_a_column(db, job_id)
    assert len(await columns_of(db, job_id)) == 40


async def assert_every_key_has_a_column(db: Database, job_id: UUID) -> None:
    without = """
        SELECT DISTINCT name FROM tidemill.job j, tidemill.outcome o, jsonb_object_keys(o.result) AS name
        WHERE j.id = %s AND o.job_id = j.id AND name <> ALL(j.result_columns)
    """
    assert await rows(db, without, job_id) == []
