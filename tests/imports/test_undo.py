"""Undo of imports: rows get their earlier content back exactly, unless they have changed or others refer to them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from psycopg.errors import TransactionTimeout

from imports.scenes import Scene, look_at, meanwhile, small_batches, with_fields
from support import eventually, job_of, rows
from support.import_requests import Shop, open_shop
from tidemill import Mill
from tidemill.app.runtime_factory import make_runtime
from tidemill.core.errors import Conflict, InvalidInput
from tidemill.core.job import Job
from tidemill.imports import undo
from tidemill.imports.undo import (
    UndoState,
    list_undo_exceptions,
    preview_complete_undo,
    preview_undo,
    read_undo_state,
    start_undo,
)
from tidemill.imports.undo_table import LoggedRows
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import ReprocessSelection, reprocess_items
from tidemill.store import operation_records, retention
from tidemill.store.database import TRANSACTION_TIMEOUT_MIN_VERSION, Database
from tidemill.store.operation_records import BulkOperation

TABLE = "CREATE TABLE t (id int PRIMARY KEY, n int, note text DEFAULT 'none')"
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Sizes:
    """Rows of a table and of an upsert, of which some exist, and rows that are edited and referenced later."""

    table: int
    imported: int
    updated: int
    edited: int
    referenced: int


async def undo_import(scene: Scene, job: Job, *, redo: bool = False, **options: Any) -> BulkOperation:
    return await start_undo(make_runtime(scene.db, scene.settings), job, redo=redo, by=0, **options)


async def counts(scene: Scene, job: Job, operation: BulkOperation) -> tuple[int, int, int]:
    """Return the numbers of reversed, kept and blocked rows."""
    state = await state_of(scene, job)
    assert state.operation is not None
    assert (state.operation.id, state.operation.state) == (operation.id, "done"), state.operation.error
    return state.operation.items, state.kept, state.blocked


async def state_of(scene: Scene, job: Job) -> UndoState:
    return await read_undo_state(make_runtime(scene.db, scene.settings), job)


async def previewed(scene: Scene, job: Job, *, redo: bool = False) -> tuple[int, int, int]:
    preview = await preview_complete_undo(make_runtime(scene.db, scene.settings), job, redo=redo)
    assert preview.checked == preview.rows == preview.reversed + preview.kept + preview.blocked
    return preview.reversed, preview.kept, preview.blocked


async def exceptions(scene: Scene, job: Job) -> list[tuple[str, str, list[str]]]:
    page = await list_undo_exceptions(make_runtime(scene.db, scene.settings), job, limit=100)
    return [(one.status, one.code, list(one.key)) for one in page.items]


async def content(scene: Scene, table: str = "t") -> list[Row]:
    return await scene.rows(f"SELECT t::text FROM {table} t ORDER BY 1")


async def undo_all(scene: Scene, job: Job, *, redo: bool = False) -> int:
    """Undo an import whose rows can all be reversed; return their number."""
    expected = await previewed(scene, job, redo=redo)
    operation = await undo_import(scene, job, redo=redo)
    assert await counts(scene, job, operation) == expected == (operation.items, 0, 0)
    return operation.items


async def test_undo_deletes_inserted_and_restores_updated_rows(scene: Scene) -> None:
    await scene.table(TABLE, "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, NULL), (9, 90, 'z')")
    before = await content(scene)
    job = await scene.run("id,n\n1,11\n2,21\n3,31\n9,90\n", "t", mode="upsert", undo=True)
    after = await content(scene)
    assert await undo_all(scene, job) == 3
    assert await content(scene) == before
    assert await undo_all(scene, job, redo=True) == 3
    assert await content(scene) == after
    assert await undo_all(scene, job) == 3
    assert await content(scene) == before
    with pytest.raises(Conflict, match="has no rows to undo"):
        await undo_import(scene, job)
    with pytest.raises(Conflict, match="has no rows to undo"):
        await preview_undo(make_runtime(scene.db, scene.settings), job)


VALUES = """CREATE TABLE t (
    id int PRIMARY KEY, big numeric, price numeric(12,4), ratio float8, small real, at timestamptz, span interval,
    day date, clock timetz, raw bytea, tags text[], grid int[][], doc json, docb jsonb, code char(5), flag boolean,
    cash money, mood mood, pos point, during tstzrange, ip inet, bits bit varying(8), "we%%ird ""name" text,
    doubled int GENERATED ALWAYS AS (id * 2) STORED, no bigint GENERATED ALWAYS AS IDENTITY,
    note text DEFAULT 'none')"""
COLUMNS = (
    "id,big,price,ratio,small,at,span,day,clock,raw,tags,grid,doc,docb,code,flag,cash,mood,pos,during,ip,bits,"
    '"we%%ird ""name"'
)
FIRST = (
    "1, 12345678901234567890.123456789, 1.5, 0.1, 0.1, '2026-03-29 01:30:00.123456+00', '-1 days +02:03:04',"
    " '0044-03-15 BC', '12:00:01.5+02', '\\x00ff', '{a,NULL,\"b,c\",\"\"}', '{{1,2},{3,4}}', '{\"b\":1,  \"a\":1.10}',"
    " '{\"a\": 1.10}', 'ab', false, 1234.56, 'so-so', '(1.5,2)', '[2026-01-01,2026-02-01)', '10.0.0.1/8', B'101',"
    " E'tab\\t \\\\N \"q\" ü'"
)
SESSION_SETTINGS = {
    "timezone": "America/New_York",
    "datestyle": "ISO, DMY",
    "intervalstyle": "sql_standard",
    "extra_float_digits": "0",
    "bytea_output": "escape",
}


async def test_undo_restores_values_of_all_types_exactly_in_session_with_other_settings(scene: Scene) -> None:
    await scene.table("CREATE TYPE mood AS ENUM ('so-so', 'fine')", VALUES)
    await scene.table(f"INSERT INTO t ({COLUMNS}) VALUES ({FIRST})")
    await scene.table("INSERT INTO t (id, ratio, small) VALUES (2, 'NaN', '-Infinity')")
    before = await content(scene)
    rows_of_file = (
        "1,new,2.25,2026-07-01T00:00:00+02",
        "2,new,3,2026-01-01T00:00:00+00",
        "3,new,1.10,2026-01-01T00:00:00+00",
    )
    data = "id,note,price,at\n" + "\n".join(rows_of_file) + "\n"
    job = await scene.run(data, "t", mode="upsert", undo=True)
    assert await scene.effects(job) == (1, 2, 0)
    after = await content(scene)
    (name,) = (await scene.rows("SELECT current_database()"))[0]
    await scene.table(*(f"ALTER DATABASE {name} SET {one} = '{value}'" for one, value in SESSION_SETTINGS.items()))
    await scene.db._pool.drain()
    assert await undo_all(scene, job) == 3
    await undo_all(scene, job, redo=True)
    await undo_all(scene, job)
    await scene.table(*(f"ALTER DATABASE {name} RESET {one}" for one in SESSION_SETTINGS))
    await scene.db._pool.drain()
    assert await content(scene) == before
    await undo_all(scene, job, redo=True)
    assert await content(scene) == after


async def test_undo_of_composite_key_and_generated_keys(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE pairs (a text, b date, n int, PRIMARY KEY (a, b))",
        "INSERT INTO pairs VALUES ('x', '2026-01-01', 1)",
        "CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text)",
        "CREATE TABLE serial (id serial PRIMARY KEY, mail text UNIQUE, n int DEFAULT 5)",
        "INSERT INTO serial (mail) VALUES ('a@x'), (NULL)",
    )
    pairs = await scene.run(
        "a,b,n\nx,2026-01-01,5\nx,2026-01-02,6\ny,2026-01-01,7\n", "pairs", mode="upsert", undo=True
    )
    assert await undo_all(scene, pairs) == 3
    assert await content(scene, "pairs") == [("(x,2026-01-01,1)",)]
    numbered = await scene.run("name\na\na\n\nb\n", "numbered", undo=True)
    written = await content(scene, "numbered")
    assert len(written) == 3
    await undo_all(scene, numbered)
    assert await content(scene, "numbered") == []
    await undo_all(scene, numbered, redo=True)
    assert await content(scene, "numbered") == written
    before = await content(scene, "serial")
    serial = await scene.run("mail,n\na@x,1\nb@x,2\n,3\n", "serial", undo=True)
    assert await scene.effects(serial) == (2, 0, 0)  # a@x exists
    await undo_all(scene, serial)
    assert await content(scene, "serial") == before


async def test_undo_keeps_changed_and_deleted_rows_and_reports_them(scene: Scene) -> None:
    await scene.table(TABLE, "INSERT INTO t VALUES (1, 10), (2, 20)")
    job = await scene.run("id,n\n1,11\n2,21\n3,31\n4,41\n5,51\n", "t", mode="upsert", undo=True)
    await scene.table("UPDATE t SET note = 'edited' WHERE id IN (2, 3)", "DELETE FROM t WHERE id = 4")
    await scene.table("UPDATE t SET n = 0 WHERE id = 5", "UPDATE t SET n = 51 WHERE id = 5")  # as before
    expected = await previewed(scene, job)
    assert expected == (2, 3, 0)
    assert await counts(scene, job, await undo_import(scene, job)) == expected
    assert await exceptions(scene, job) == [
        ("kept", "changed", ["2"]),
        ("kept", "changed", ["3"]),
        ("kept", "deleted", ["4"]),
    ]
    assert await content(scene) == [("(1,10,none)",), ("(2,21,edited)",), ("(3,31,edited)",)]
    await scene.table("UPDATE t SET note = 'none' WHERE id = 2", "INSERT INTO t VALUES (1000, 5), (5, 1)")
    assert await previewed(scene, job) == (1, 2, 0)
    assert await previewed(scene, job, redo=True) == (1, 1, 0)  # 5 exists again
    assert await counts(scene, job, await undo_import(scene, job)) == (1, 2, 0)
    assert await counts(scene, job, await undo_import(scene, job, redo=True)) == (2, 1, 0)
    assert ("kept", "exists", ["5"]) in await exceptions(scene, job)


@pytest.mark.parametrize("action", ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL"])
async def test_undo_blocks_referenced_rows_whatever_the_foreign_key_does(scene: Scene, action: str) -> None:
    await scene.table(TABLE, f"CREATE TABLE child (id int, t_id int REFERENCES t ON DELETE {action})")
    job = await scene.run("id,n\n1,1\n2,2\n3,3\n", "t", undo=True)
    await scene.table("INSERT INTO child VALUES (7, 2)")
    assert await previewed(scene, job) == (2, 0, 1)
    assert await counts(scene, job, await undo_import(scene, job)) == (2, 0, 1)
    assert await exceptions(scene, job) == [("blocked", "referenced", ["2"])]
    assert await scene.rows("SELECT * FROM child") == [(7, 2)]
    assert await content(scene) == [("(2,2,none)",)]
    await scene.table("DELETE FROM child")
    assert await undo_all(scene, job) == 1


async def test_undo_of_rows_that_refer_to_each_other_needs_no_order(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t)")
    job = await scene.run("id,boss\n5,\n4,5\n3,4\n1,1\n2,3\n", "t", undo=True)
    assert await scene.count("t") == 5
    monkeypatch.setattr(undo, "FIRST_STEP_ROWS", 1)
    monkeypatch.setattr(undo, "STEP_ROWS_MAX", 1)
    assert await undo_all(scene, job) == 5
    assert await undo_all(scene, job, redo=True) == 5
    monkeypatch.undo()
    await scene.table("INSERT INTO t VALUES (9, 3)")
    assert await counts(scene, job, await undo_import(scene, job)) == (2, 0, 3)
    assert [key for _, _, key in await exceptions(scene, job)] == [["3"], ["4"], ["5"]]


async def test_undo_blocks_update_of_referenced_column(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, code text UNIQUE)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "CREATE TABLE child (code text REFERENCES t (code) ON UPDATE SET NULL)",
    )
    job = await scene.run("id,code\n1,A\n2,B\n", "t", mode="upsert", undo=True)
    await scene.table("INSERT INTO child VALUES ('A')")
    assert await previewed(scene, job) == (1, 0, 1)
    assert await counts(scene, job, await undo_import(scene, job)) == (1, 0, 1)
    assert await scene.rows("SELECT code FROM child") == [("A",)]


async def test_row_that_the_table_refuses_is_blocked_alone(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, mail text UNIQUE)",
        "INSERT INTO t SELECT n, 'old' || n FROM generate_series(1, 100) n",
    )
    job = await scene.run("id,mail\n" + "".join(f"{n},new{n}\n" for n in range(1, 201)), "t", mode="upsert", undo=True)
    await scene.table(
        "INSERT INTO t VALUES (1000, 'old7')",
        "CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF old.id = 150 THEN RAISE 'not this one'; END IF;"
        " IF old.id IN (160, 20) THEN RETURN NULL; END IF;"
        " RETURN CASE WHEN TG_OP = 'DELETE' THEN old ELSE new END; END $$",
        "CREATE TRIGGER guard BEFORE UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION guard()",
    )
    assert await counts(scene, job, await undo_import(scene, job)) == (196, 0, 4)
    found = await exceptions(scene, job)
    assert sorted(found, key=lambda one: int(one[2][0])) == [
        ("blocked", "taken", ["7"]),
        ("blocked", "refused", ["20"]),
        ("blocked", "refused", ["150"]),
        ("blocked", "refused", ["160"]),
    ]
    assert await scene.count("t") == 103
    await scene.table("DELETE FROM t WHERE id = 1000", "DROP TRIGGER guard ON t")
    assert await undo_all(scene, job) == 4


async def test_undo_hashes_content_that_triggers_wrote(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int, stamp timestamptz, total int)",
        "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN new.stamp = clock_timestamp(); RETURN new; END $$",
        "CREATE TRIGGER stamp BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stamp()",
        "CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE t SET total = n * 2 WHERE id = new.id AND total IS DISTINCT FROM n * 2; RETURN NULL; END $$",
        "CREATE TRIGGER total AFTER INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION total()",
        "INSERT INTO t VALUES (1, 1)",
    )
    job = await scene.run("id,n\n1,5\n2,6\n", "t", mode="upsert", undo=True)
    assert await scene.rows("SELECT id, n, total FROM t ORDER BY id") == [(1, 5, 10), (2, 6, 12)]
    await undo_all(scene, job)
    assert await scene.rows("SELECT id, n, total FROM t ORDER BY id") == [(1, 1, 2)]
    await undo_all(scene, job, redo=True)
    assert await scene.rows("SELECT id, n, total FROM t ORDER BY id") == [(1, 5, 10), (2, 6, 12)]


async def test_trigger_that_changes_keys_ends_undoable_import_before_it_writes(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "INSERT INTO t VALUES (2, 0)",
        "CREATE FUNCTION shift() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN new.id = new.id + 100; RETURN new; END $$",
        "CREATE TRIGGER shift BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION shift()",
    )
    for data in ("id,n\n1,1\n", "id,n\n2,2\n"):  # the second key belongs to another row
        job = await scene.run(data, "t", undo=True, mode="insert")
        assert job.status == "failed"
        assert "a trigger changes it" in str(job.failure_reason)
        assert await content(scene) == [("(2,0)",)]


async def test_row_that_trigger_discards_is_not_recorded(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "CREATE FUNCTION dedupe() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF new.n = 0 THEN RETURN NULL; END IF; RETURN new; END $$",
        "CREATE TRIGGER dedupe BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION dedupe()",
    )
    job = await scene.run("id,n\n1,1\n2,0\n3,3\n", "t", undo=True)
    assert await scene.errors(job) == [(2, "refused")]
    await scene.table("INSERT INTO t VALUES (2, 7)")
    assert await undo_all(scene, job) == 2
    assert await content(scene) == [("(2,7)",)]


async def test_undo_survives_added_column_and_refuses_changed_ones(scene: Scene) -> None:
    await scene.table(TABLE, "INSERT INTO t VALUES (1, 10)")
    job = await scene.run("id,n\n1,11\n2,21\n3,31\n4,41\n", "t", mode="upsert", undo=True)
    await scene.table("ALTER TABLE t ADD extra text DEFAULT '100%%', ADD more int")
    await scene.table("UPDATE t SET extra = 'mine' WHERE id = 1", "UPDATE t SET more = 5 WHERE id = 2")
    await scene.table("UPDATE t SET extra = 'mine' WHERE id = 3")
    assert await previewed(scene, job) == (2, 2, 0)
    assert await counts(scene, job, await undo_import(scene, job)) == (2, 2, 0)
    assert await content(scene) == [("(1,10,none,mine,)",), ("(2,21,none,100%,5)",), ("(3,31,none,mine,)",)]
    assert await undo_all(scene, job, redo=True) == 2
    await scene.table("ALTER TABLE t ALTER n TYPE bigint")
    with pytest.raises(Conflict, match='column "n" was integer and is bigint'):
        await preview_undo(make_runtime(scene.db, scene.settings), job)
    with pytest.raises(Conflict, match='column "n" was integer and is bigint'):
        await undo_import(scene, job)
    await scene.table("DROP TABLE t")
    with pytest.raises(Conflict, match="no longer exists"):
        await undo_import(scene, job)


async def test_rows_of_later_import_are_changed_until_that_is_undone(scene: Scene) -> None:
    await scene.table(TABLE)
    first = await scene.run("id,n\n1,1\n2,2\n", "t", undo=True)
    second = await scene.run("id,n\n2,5\n3,6\n", "t", mode="upsert", undo=True)
    assert await previewed(scene, first) == (1, 1, 0)
    assert await undo_all(scene, second) == 2
    assert await undo_all(scene, first) == 2
    assert await scene.count("t") == 0


async def test_undo_includes_rows_that_were_fixed_and_retried(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    small_batches(monkeypatch, 2)
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE other (id int PRIMARY KEY)")
    await scene.table("ALTER TABLE t ADD other int REFERENCES other")
    job = await scene.run("id,n,other\n1,1,\n2,2,5\n3,3,\n4,4,5\n", "t", undo=True)
    assert len(await scene.errors(job)) == 2
    await scene.table("INSERT INTO other VALUES (5)")
    await reprocess_items(scene.db, job.id, ReprocessSelection())
    job = await scene.finish(job.id)
    assert await scene.count("t") == 4
    assert await undo_all(scene, job) == 4
    assert await scene.count("t") == 0


async def test_import_without_undo_dry_run_and_unsuitable_table_are_refused(scene: Scene) -> None:
    await scene.table(TABLE, "CREATE TABLE keyless (n int)", "CREATE TABLE loose (n int UNIQUE)")
    for options in ({}, {"undo": False}, {"undo": True, "validate_only": True}):
        job = await scene.run("id,n\n1,1\n", "t", **options)
        with pytest.raises(Conflict, match="kept no data for an undo"):
            await undo_import(scene, job)
        await scene.table("DELETE FROM t")
    assert await scene.rows("SELECT count(*) FROM tidemill.undo_log") == [(0,)]
    for table in ("keyless", "loose"):
        with pytest.raises(InvalidInput, match="needs a unique key whose columns are NOT NULL"):
            await scene.run("n\n1\n", table, undo=True)


async def test_second_undo_and_open_import_are_refused(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n\n1,1\n2,2\n", "t", undo=True)
    waiting = await undo_import(scene, job, timeout_s=0)
    assert waiting.state == "running"
    for redo in (False, True):
        with pytest.raises(Conflict, match="already running" if not redo else "no rows to redo"):
            await undo_import(scene, job, redo=redo)
    await rows(scene.db, "UPDATE tidemill.operation SET state = 'cancelled'")
    await rows(scene.db, "UPDATE tidemill.job SET closed_as = NULL, closed_at = NULL")
    with pytest.raises(Conflict, match="Wait until it is closed"):
        await undo_import(scene, await job_of(scene.db, job.id))


async def test_purged_import_has_no_undo_and_its_log_is_deleted(scene: Scene) -> None:
    await scene.table(TABLE)
    job, deleted = [await scene.run(f"id,n\n{n},1\n", "t", undo=True) for n in (1, 2)]
    await job_control.delete_job(scene.db, deleted.id, by=0)
    while await scene.db.run(retention.delete_row_chunk_of_deleted_job, deleted.id):
        pass
    assert await scene.rows("SELECT DISTINCT job_id FROM tidemill.undo_log") == [(job.id,)]
    waiting = await undo_import(scene, job, timeout_s=0)
    await rows(scene.db, "UPDATE tidemill.job SET purged_at = tidemill.now()")
    while await scene.db.run(retention._delete_undo_chunk_of_purged_jobs):
        pass
    assert await scene.rows("SELECT count(*) FROM tidemill.undo_log") == [(0,)]
    ended = await finish_operation(scene, waiting.id)
    assert (ended.state, ended.error) == ("failed", "The import was purged, and its undo data was deleted")
    with pytest.raises(Conflict, match="purged"):
        await undo_import(scene, await job_of(scene.db, job.id))
    assert await scene.count("t") == 2


async def finish_operation(scene: Scene, operation_id: UUID) -> BulkOperation:
    while (operation := await scene.db.run(operation_records.get_operation, operation_id)).state == "running":
        await scene.db.run(operation_records.run_operation_step, operation_id, undo.UNDO_STEPS)
    return operation


async def test_preview_continues_where_its_time_ended(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n\n" + "".join(f"{n},1\n" for n in range(25)), "t", undo=True)
    await scene.table("UPDATE t SET n = 2 WHERE id < 3")
    monkeypatch.setattr(undo, "PREVIEW_CHUNK_ROWS", 10)
    monkeypatch.setattr(undo, "PREVIEW_S", 0.0)
    runtime = make_runtime(scene.db, scene.settings)
    first = await preview_undo(runtime, job)
    assert (first.rows, first.checked, first.position is None) == (25, 10, False)
    assert await previewed(scene, job) == (22, 3, 0)
    with pytest.raises(InvalidInput):
        await preview_undo(runtime, job, redo=False, position=("undo_preview", "other", 1, 2))


@pytest.mark.parametrize("with_trigger", [False, True])
async def test_content_that_another_session_commits_before_the_update_is_restored(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, with_trigger: bool
) -> None:
    """The recorded content is the one that the update replaces, not the one of the check."""
    await scene.table(TABLE, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)")
    if with_trigger:
        await scene.table(
            "CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$",
            "CREATE TRIGGER pass BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION pass()",
        )
    async with meanwhile(monkeypatch, scene, "UPDATE t SET note = 'late' WHERE id = 2", "DELETE FROM t WHERE id = 3"):
        job = await scene.run("id,n\n1,5\n2,5\n3,5\n", "t", mode="upsert", undo=True)
    assert await scene.effects(job) == (1, 2, 0)
    assert await undo_all(scene, job) == 3
    assert await content(scene) == [("(1,1,none)",), ("(2,2,late)",)]


async def test_update_that_waits_for_another_session_does_not_record_older_content(scene: Scene) -> None:
    """The update waits for the lock of a row; the row that it then finds is a newer version than it has read."""
    await scene.table(TABLE, "INSERT INTO t VALUES (1, 1), (2, 2)")
    job_id = await scene.submit("id,n\n1,5\n2,5\n", "t", mode="upsert", undo=True)
    async with scene.db.transaction() as other:
        await other.execute("UPDATE t SET note = 'late' WHERE id = 1")
        running = asyncio.create_task(scene.finish(job_id))
        waiting = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )

        async def waits() -> bool:
            return bool((await scene.rows(waiting))[0][0])

        await eventually(waits)
    job = await running
    assert await scene.effects(job) == (0, 2, 0)
    assert await undo_all(scene, job) == 2
    assert await content(scene) == [("(1,1,late)",), ("(2,2,none)",)]


async def test_undo_of_partitioned_table(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int, part int, n int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2)",
        "INSERT INTO t VALUES (1, 1, 1), (1, 2, 2)",
    )
    before = await content(scene)
    job = await scene.run("id,part,n\n1,1,5\n1,2,6\n2,1,7\n2,2,8\n", "t", mode="upsert", undo=True)
    after = await content(scene)
    assert await undo_all(scene, job) == 4
    assert await content(scene) == before
    await undo_all(scene, job, redo=True)
    assert await content(scene) == after


async def test_undo_and_import_of_same_rows_at_once_leave_no_row_half_done(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 100)
    monkeypatch.setattr(undo, "FIRST_STEP_ROWS", 50)
    monkeypatch.setattr(undo, "STEP_ROWS_MAX", 50)
    await scene.table(TABLE)
    lines = "".join(f"{n},1\n" for n in range(1_000))
    first = await scene.run("id,n\n" + lines, "t", undo=True)
    second_id = await scene.submit("id,n\n" + lines.replace(",1\n", ",2\n"), "t", mode="upsert", undo=True)
    operation, second = await asyncio.gather(undo_import(scene, first), scene.finish(second_id))
    reversed_, kept, blocked = await counts(scene, first, operation)
    inserted, updated, _ = await scene.effects(second)
    assert (reversed_ + kept, blocked, inserted + updated) == (1_000, 0, 1_000)
    # A row that the undo has deleted before the import is inserted again; the others are updated, and kept.
    assert (await scene.rows("SELECT count(*), min(n), max(n) FROM t"))[0] == (1_000, 2, 2)
    await undo_all(scene, second)
    assert await scene.count("t") == updated
    assert await previewed(scene, first) == (kept, 0, 0)
    await undo_all(scene, first)
    assert await scene.count("t") == 0


@pytest.mark.parametrize("action", ["CASCADE", "NO ACTION"])
async def test_undo_of_long_chain_keeps_every_row_that_a_changed_row_needs(scene: Scene, action: str) -> None:
    await scene.table(f"CREATE TABLE node (id int PRIMARY KEY, prev int REFERENCES node ON DELETE {action}, note text)")
    chain = "".join(f"{n},{n - 1 or ''}\n" for n in range(1, 31))
    job = await scene.run(f"id,prev\n{chain}50,\n51,51\n", "node", undo=True)
    await scene.table("UPDATE node SET note = 'edited' WHERE id = 30")
    assert await counts(scene, job, await undo_import(scene, job)) == (2, 1, 29)
    assert await scene.count("node") == 30
    await scene.table("UPDATE node SET note = NULL WHERE id = 30")
    assert await undo_all(scene, job) == 30


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
async def test_row_that_is_deleted_in_a_later_part_keeps_the_row_to_which_it_refers(scene: Scene, action: str) -> None:
    await scene.table(
        f"CREATE TABLE node (id int PRIMARY KEY, prev int REFERENCES node ON DELETE {action})",
        "CREATE FUNCTION guard() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF old.id = 3 THEN RAISE 'not this one'; END IF; RETURN old; END $$",
        "CREATE TRIGGER guard BEFORE DELETE ON node FOR EACH ROW EXECUTE FUNCTION guard()",
    )
    job = await scene.run("id,prev\n1,\n2,1\n3,\n", "node", undo=True)
    after = await content(scene, "node")
    assert await counts(scene, job, await undo_import(scene, job)) == (2, 0, 1)
    assert await exceptions(scene, job) == [("blocked", "refused", ["3"])]
    assert await content(scene, "node") == [("(3,)",)]
    assert await undo_all(scene, job, redo=True) == 2
    assert await content(scene, "node") == after


async def test_foreign_key_to_a_partition_blocks_undo_of_the_partitioned_table(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (100)",
        "CREATE TABLE child (id int, t_id int REFERENCES t1 ON DELETE CASCADE)",
    )
    job = await scene.run("id,n\n1,1\n2,2\n", "t", undo=True)
    await scene.table("INSERT INTO child VALUES (7, 2)")
    assert await previewed(scene, job) == (1, 0, 1)
    assert await counts(scene, job, await undo_import(scene, job)) == (1, 0, 1)
    assert await scene.rows("SELECT * FROM child") == [(7, 2)]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
async def test_undo_blocks_update_of_row_whose_generated_column_is_referenced(scene: Scene, action: str) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, name text, code text GENERATED ALWAYS AS (lower(name)) STORED UNIQUE)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        f"CREATE TABLE child (code text REFERENCES t (code) ON UPDATE {action})",
    )
    job = await scene.run("id,name\n1,x\n2,y\n", "t", mode="upsert", undo=True)
    await scene.table("INSERT INTO child VALUES ('x')")
    assert await previewed(scene, job) == (1, 0, 1)
    assert await counts(scene, job, await undo_import(scene, job)) == (1, 0, 1)
    assert await scene.rows("SELECT code FROM child") == [("x",)]


async def test_trigger_of_a_partition_that_changes_keys_ends_undoable_import(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (1000)",
        "INSERT INTO t VALUES (1, 0)",
        "CREATE FUNCTION shift() RETURNS trigger LANGUAGE plpgsql AS $$"
        " BEGIN new.id = new.id + 100; RETURN new; END $$",
        "CREATE TRIGGER shift BEFORE INSERT ON t1 FOR EACH ROW EXECUTE FUNCTION shift()",
    )
    job = await scene.run("id,n\n1,1\n", "t", undo=True, mode="insert")
    assert job.status == "failed"
    assert "a trigger changes it" in str(job.failure_reason)
    assert await content(scene) == [("(1,0)",)]


async def test_undo_of_update_hashes_content_that_triggers_of_a_partition_wrote(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int, total int) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (1) TO (1000)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE FUNCTION total() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " UPDATE t SET total = n * 2 WHERE id = new.id AND total IS DISTINCT FROM n * 2; RETURN NULL; END $$",
        "CREATE TRIGGER total AFTER UPDATE ON t1 FOR EACH ROW EXECUTE FUNCTION total()",
    )
    job = await scene.run("id,n\n1,5\n", "t", mode="upsert", undo=True)
    assert await content(scene) == [("(1,5,10)",)]
    assert await undo_all(scene, job) == 1


@asynccontextmanager
async def database_settings(scene: Scene, **settings: str) -> AsyncIterator[None]:
    """Use other defaults for new sessions in this block."""
    (name,) = (await scene.rows("SELECT current_database()"))[0]
    await scene.table(*(f"ALTER DATABASE {name} SET {one} = '{value}'" for one, value in settings.items()))
    await scene.db._pool.drain()
    yield
    await scene.table(*(f"ALTER DATABASE {name} RESET {one}" for one in settings))
    await scene.db._pool.drain()


async def test_undo_in_another_time_zone_deletes_only_rows_of_the_import(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (during tstzrange PRIMARY KEY, n int)")
    async with database_settings(scene, timezone="UTC"):
        job = await scene.run('during,n\n"[2026-01-01 10:00,2026-01-01 11:00)",1\n', "t", undo=True)
    await scene.table("INSERT INTO t VALUES ('[2026-01-01 09:00+00,2026-01-01 10:00+00)', 1)")
    async with database_settings(scene, timezone="Etc/GMT-1"):
        assert await undo_all(scene, job) == 1
    assert await scene.rows("SELECT lower(during) = '2026-01-01 09:00+00' FROM t") == [(True,)]


async def test_retry_after_rejected_row_records_all_digits(scene: Scene) -> None:
    await scene.table(
        "CREATE FUNCTION is_small(n int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT n < 100'",
        "CREATE TABLE t (id int PRIMARY KEY, n int CHECK (is_small(n)), ratio float8)",
        "INSERT INTO t VALUES (1, 1, 0.1::float8 + 0.2::float8), (2, 2, 0.3)",
    )
    async with database_settings(scene, extra_float_digits="0"):
        job = await scene.run("id,n\n1,5\n2,500\n3,6\n", "t", mode="upsert", undo=True)
    assert await scene.effects(job) == (1, 1, 0)
    assert await undo_all(scene, job) == 2
    assert await scene.rows("SELECT ratio = 0.1::float8 + 0.2::float8 FROM t WHERE id = 1") == [(True,)]


@pytest.mark.parametrize("is_partitioned", [False, True])
async def test_undo_deletes_rows_that_are_older_than_columns_with_defaults(scene: Scene, is_partitioned: bool) -> None:
    if is_partitioned:
        await scene.table(f"{TABLE} PARTITION BY HASH (id)")
        await scene.table("CREATE TABLE t1 PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)")
    else:
        await scene.table(TABLE)
    job = await scene.run("id,n\n1,1\n2,2\n3,3\n", "t", undo=True)
    await scene.table(
        "ALTER TABLE t ADD active boolean DEFAULT true, ADD code char(5) DEFAULT 'ab', ADD ip inet DEFAULT '10.0.0.1',"
        " ADD since timestamptz DEFAULT '2026-01-01 00:00+00', ADD doc json DEFAULT '{\"a\": 1}'",
        "UPDATE t SET active = false WHERE id = 2",
        "UPDATE t SET ip = '10.0.0.2' WHERE id = 3",
    )
    assert await previewed(scene, job) == (1, 2, 0)
    async with database_settings(scene, timezone="Asia/Tokyo"):
        assert await counts(scene, job, await undo_import(scene, job)) == (1, 2, 0)
    assert await scene.rows("SELECT id FROM t ORDER BY id") == [(2,), (3,)]


@pytest.mark.parametrize("ddl", ["ADD token uuid DEFAULT gen_random_uuid()", "ADD active boolean DEFAULT true"])
async def test_undo_keeps_inserted_rows_if_the_first_value_of_a_new_column_is_unknown(scene: Scene, ddl: str) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n\n1,1\n", "t", undo=True)
    await scene.table(f"ALTER TABLE t {ddl}", "UPDATE t SET n = n", "VACUUM FULL t")
    assert await counts(scene, job, await undo_import(scene, job)) == (0, 1, 0)


async def test_foreign_key_between_columns_with_different_collations_is_checked(scene: Scene) -> None:
    await scene.table(
        'CREATE TABLE t (id text COLLATE "C" PRIMARY KEY, n int)',
        'CREATE TABLE child (t_id text COLLATE "POSIX" REFERENCES t ON DELETE CASCADE)',
    )
    job = await scene.run("id,n\na,1\nb,2\n", "t", undo=True)
    await scene.table("INSERT INTO child VALUES ('b')")
    assert await previewed(scene, job) == (1, 0, 1)
    assert await counts(scene, job, await undo_import(scene, job)) == (1, 0, 1)
    assert await exceptions(scene, job) == [("blocked", "referenced", ["b"])]


async def test_row_whose_lock_times_out_is_blocked(scene: Scene) -> None:
    await scene.table(TABLE)
    job = await scene.run("id,n\n1,1\n2,2\n", "t", undo=True)
    async with database_settings(scene, lock_timeout="100ms"), scene.db.transaction() as other:
        await other.execute("SELECT FROM t WHERE id = 1 FOR UPDATE")
        operation = await asyncio.wait_for(undo_import(scene, job), 20)
    assert await counts(scene, job, operation) == (1, 0, 1)
    assert await exceptions(scene, job) == [("blocked", "timeout", ["1"])]


async def test_undo_of_many_slowly_refused_rows_needs_several_steps(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(
        TABLE,
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " PERFORM pg_sleep(0.05); RAISE 'not this one'; END $$",
        "CREATE TRIGGER refuse BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    job = await scene.run("id,n\n" + "".join(f"{n},1\n" for n in range(60)), "t", undo=True)
    monkeypatch.setattr(undo, "REVERSE_S", 0.5, raising=False)
    waiting = await undo_import(scene, job, timeout_s=0)
    await scene.db.run(operation_records.run_operation_step, waiting.id, undo.UNDO_STEPS)
    assert 0 < (await state_of(scene, job)).blocked < 60
    assert await counts(scene, job, await finish_operation(scene, waiting.id)) == (0, 0, 60)


async def test_transaction_timeout_of_an_undo_step_is_raised(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    (version,) = (await scene.rows("SELECT current_setting('server_version_num')::int"))[0]
    if version < TRANSACTION_TIMEOUT_MIN_VERSION:
        pytest.skip("PostgreSQL 17 or newer has a transaction timeout")
    await scene.table(TABLE)
    job = await scene.run("id,n\n1,1\n2,2\n", "t", undo=True)
    find_changed = LoggedRows.find_changed

    async def find_slowly(self: LoggedRows, *args: Any, **options: Any) -> dict[int, bool]:
        for _ in range(5):
            await self._conn.execute("SELECT pg_sleep(0.1)")
        return await find_changed(self, *args, **options)

    monkeypatch.setattr(LoggedRows, "find_changed", find_slowly)
    monkeypatch.setattr(scene.db, "timeout_ms", 150)
    with pytest.raises(TransactionTimeout):
        await asyncio.wait_for(undo_import(scene, job), 20)
    assert await scene.count("t") == 2


async def test_exceptions_of_undo_hide_values_of_sensitive_fields(scene: Scene) -> None:
    await scene.table(
        "CREATE TABLE t (mail text, day date, n int, PRIMARY KEY (mail, day))",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF old.n = 2 THEN PERFORM old.mail::int; END IF; RETURN old; END $$",
        "CREATE TRIGGER refuse BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    resource = with_fields(await look_at(scene.db, "t"), mail={"sensitive": True})
    data = "mail,day,n\na@x,2026-01-01,1\nb@x,2026-01-02,2\n"
    job = await scene.run(data, "t", resource=resource, undo=True)
    await scene.table("UPDATE t SET n = 5 WHERE mail = 'a@x'")
    assert await counts(scene, job, await undo_import(scene, job)) == (0, 1, 1)
    stored = await scene.rows("SELECT key, reason FROM tidemill.undo_exception ORDER BY id")
    assert stored == [
        (["…", "2026-01-01"], "the row has changed since"),
        (["…", "2026-01-02"], "the table rejected a value"),
    ]


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


PEOPLE = b"email,name,age\nada@x.org,Ada,36\nbob@x.org,Bob,41\n"


async def test_undo_routes_preview_undo_list_rows_and_redo(shop: Shop) -> None:
    done = await shop.imported(PEOPLE, undo="true")
    assert done["undo"] is True
    path = f"/v1/imports/{done['job_id']}/undo"
    await rows(shop.api.db, "UPDATE shop.people SET age = 1 WHERE email = 'bob@x.org'")
    preview = await shop.ada.post(f"{path}/preview", json={})
    assert preview.json() == {"rows": 2, "checked": 2, "reversed": 1, "kept": 1, "blocked": 0}
    answer = await shop.ada.post(path, json={})
    assert answer.status_code == 200, answer.text
    assert (answer.json()["verb"], answer.json()["items"], answer.json()["unchanged"]) == ("undo", 1, 1)
    assert [name for name, *_ in await shop.people()] == ["bob@x.org"]
    state = (await shop.ada.get(path)).json()
    assert {name: state[name] for name in ("undoable", "redoable", "kept", "blocked")} == {
        "undoable": 1,
        "redoable": 1,
        "kept": 1,
        "blocked": 0,
    }
    listed = (await shop.ada.get(f"{path}/rows", params={"status": "kept", "page_size": 1})).json()
    assert listed == {
        "rows": [{"status": "kept", "code": "changed", "reason": "the row has changed since", "key": ["bob@x.org"]}]
    }
    assert (await shop.ada.get(f"{path}/rows", params={"status": "blocked"})).json() == {"rows": []}
    assert (await shop.ada.post(path, json={"redo": True})).json()["items"] == 1
    assert len(await shop.people()) == 2
    [activity, *_] = (await shop.ada.get(f"/v1/jobs/{done['job_id']}/activity")).json()["activity"]
    assert activity["verb"] in ("undo", "redo")


async def test_undo_routes_hide_imports_of_other_users_and_check_permission(shop: Shop) -> None:
    done = await shop.imported(PEOPLE, undo="true")
    path = f"/v1/imports/{done['job_id']}/undo"
    bob = await shop.api.user("bob")
    for answer in (
        await bob.get(path),
        await bob.post(path, json={}),
        await bob.post(f"{path}/preview", json={}),
        await bob.get(f"{path}/rows"),
    ):
        assert answer.status_code == 404, answer.text
    assert len(await shop.people()) == 2
    plain = await shop.imported(b"email,name,age\ncy@x.org,Cy,1\n")
    answer = await shop.ada.post(f"/v1/imports/{plain['job_id']}/undo", json={})
    assert answer.status_code == 409
    assert "kept no data for an undo" in answer.text
    assert (await shop.ada.post(path, json={"redo": True})).status_code == 409
    assert (await shop.ada.post(path, json={"rdo": True})).status_code == 422


async def test_resource_makes_undo_the_default_and_request_can_disable_it(scene: Scene) -> None:
    await scene.table(TABLE)
    resource = replace(await look_at(scene.db, "t"), undo=True)
    job = await scene.run("id,n\n1,1\n", "t", resource=resource)
    assert await undo_all(scene, job) == 1
    job = await scene.run("id,n\n2,1\n", "t", resource=resource, undo=False)
    with pytest.raises(Conflict, match="kept no data"):
        await undo_import(scene, job)


async def test_mill_previews_and_undoes_import(scene: Scene, mill: Mill, tmp_path: Path) -> None:
    await scene.table(TABLE)
    (tmp_path / "rows.csv").write_text("id,n\n1,1\n2,2\n")
    job_id = await mill.submit_import_async(tmp_path / "rows.csv", "t", undo=True)
    await scene.finish(job_id)
    preview = await mill.preview_undo_async(job_id)
    assert (preview.reversed, preview.kept, preview.blocked) == (2, 0, 0)
    state = await mill.undo_import_async(job_id)
    assert (state.reversed, state.undoable, state.redoable) == (2, 0, 2)
    assert (await mill.undo_import_async(job_id, redo=True)).reversed == 2


async def test_undo_command_previews_lists_rows_and_exits_1_unless_complete(tidemill: Any, db: Database) -> None:
    await rows(db, TABLE)
    file = tidemill.file("rows.csv", "id,n\n1,1\n2,2\n3,3\n")
    assert "3 inserted" in tidemill("import", file, "--into", "t", "--undo").out
    [(key,)] = await rows(db, "SELECT key FROM tidemill.job")
    await rows(db, "UPDATE t SET n = 9 WHERE id = 2")
    said = tidemill("undo", key, "--preview").out
    assert "2 rows would be reversed" in said
    assert "1 rows would be kept" in said
    undone = tidemill("undo", key, code=1).out
    assert f"Reversed 2 rows of {key}" in undone
    assert "the row has changed since" in undone
    assert '"code": "changed"' in tidemill("undo", key, "--rows", "--json").out
    assert '"reversed": 2' in tidemill("undo", key, "--redo", "--json").out
    await rows(db, "UPDATE t SET n = 2 WHERE id = 2")
    assert f"Reversed 3 rows of {key}" in tidemill("undo", key).out
    assert "has no rows to undo" in tidemill("undo", key, code=2).err
