"""Columns are learnt beside others who learn, lock, delete, kill and die."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from uuid import UUID

import pytest

from results.scenes import columns_of
from support import Workers, add_job, assert_sound, closed, eventually, fates, job_of, rows, take
from tidemill import Item, Mill
from tidemill.domain.errors import UnknownJob
from tidemill.engine.columns import ColumnsByJob, JobColumns
from tidemill.operations import control
from tidemill.operations.export import job_columns
from tidemill.store import results
from tidemill.store.database import Connection, Database
from tidemill.store.json import encode
from tidemill.testing import drain
from traps.scenes import at_once, held_up


async def test_two_processes_with_different_columns_at_once_both_find_room(db: Database) -> None:
    job_id = await add_job(db, 1)
    async with db.transaction() as conn:
        await results.learn(conn, job_id, ["a", "b"])
        other = await held_up(db, db.run(results.learn, job_id, ["c", "b"]))
    assert await at_once(other) == ["a", "b", "c"]
    assert await columns_of(db, job_id) == ["a", "b", "c"]


async def test_many_at_once_lose_nothing_and_double_nothing(db: Database) -> None:
    job_id = await add_job(db, 1)
    asked = [[f"c{n}", f"c{(n * 7) % 20}", "all"] for n in range(20)]
    await asyncio.gather(*(db.run(results.learn, job_id, list(dict.fromkeys(names))) for names in asked))
    assert sorted(await columns_of(db, job_id)) == sorted({name for names in asked for name in names})


async def test_the_columns_of_a_deleted_job_are_nobodys(db: Database) -> None:
    job_id = await add_job(db, 10)
    columns = ColumnsByJob().of(await take(db, job_id))
    await control.delete(db, job_id)
    columns.see({"a": 1}, b'{"a":1}')
    await columns.store(db)
    assert await db.run(results.learn, job_id, ["b"]) is None
    with pytest.raises(UnknownJob):
        await job_columns(db, job_id)


async def test_what_is_known_is_not_asked_for_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, asked = await add_job(db, 1), []
    learn = results.learn

    async def counting(conn: Connection, job_id: UUID, names: list[str]) -> list[str] | None:
        asked.append(names)
        return await learn(conn, job_id, names)

    monkeypatch.setattr(results, "learn", counting)
    columns = JobColumns(job_id)
    for n in range(100):
        for result in ({"a": n, "b": n}, [n], n):
            columns.see(result, encode(result))
        await columns.store(db)
    assert asked == [["a", "b", "result"]]


async def test_a_column_that_another_process_learnt_is_known_after_one_look(db: Database) -> None:
    job_id = await add_job(db, 1)
    await db.run(results.learn, job_id, ["a", "b", "c"])
    columns = JobColumns(job_id)
    columns.see({"c": 1}, b'{"c":1}')
    await columns.store(db)
    columns.see({"b": 1, "a": 1}, b'{"b":1,"a":1}')
    assert not columns._fresh


async def test_a_batch_that_is_held_does_not_wait_for_whoever_waits_for_it(mill: Mill, db: Database) -> None:
    """Delete has the job and waits for the batch; the batch's handler must not wait for the job."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    @mill.batch_handler("test")
    async def run(items: list[Item], conn: Connection) -> list[dict[str, int]]:
        reached.set()
        await go_on.wait()
        return [{"a": 1} for _ in items]

    job_id = await mill.submit_async("test", [1])
    draining = asyncio.create_task(drain(mill, db=db))
    await reached.wait()
    deleting = await held_up(db, control.delete(db, job_id))
    go_on.set()
    await asyncio.wait_for(deleting, 10)
    await asyncio.wait_for(draining, 10)
    await assert_sound(db)


async def test_columns_that_had_to_wait_are_stored_after_the_batch(mill: Mill, db: Database) -> None:
    locked, go_on = asyncio.Event(), asyncio.Event()

    @mill.batch_handler("test")
    async def run(items: list[Item], conn: Connection) -> list[dict[str, int]]:
        locked.set()
        await go_on.wait()
        return [{"a": 1} for _ in items]

    job_id = await mill.submit_async("test", [1])
    draining = asyncio.create_task(drain(mill, db=db))
    await locked.wait()
    async with db.transaction() as conn:
        await conn.execute(b"SELECT 1 FROM tidemill.job WHERE id = %s FOR NO KEY UPDATE", [job_id])
        go_on.set()

        async def batch_is_done() -> bool:
            return (await job_of(db, job_id)).counts.done == 1

        await eventually(batch_is_done)
        assert await columns_of(db, job_id) == []
    await draining
    assert await columns_of(db, job_id) == ["a"]


async def test_results_that_a_parent_saves_for_a_dead_child_have_their_columns(
    workers: Workers, db: Database, tmp_path: Path
) -> None:
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


async def test_no_result_is_ever_without_its_columns_however_often_children_die(
    workers: Workers, db: Database, tmp_path: Path
) -> None:
    # Slow until the last one was killed, however long it takes to start another.
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
        with contextlib.suppress(ProcessLookupError):  # one that died before may still have been counted
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
