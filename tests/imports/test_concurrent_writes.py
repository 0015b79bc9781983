"""Other sessions write between check and write: no batch fails as a whole, and no row is lost silently."""

import random
from typing import Any

import pytest

from imports.scenes import Scene, meanwhile, small_batches
from tidemill.imports import write_rows as landing

TABLES = (
    "CREATE TABLE parent (id int PRIMARY KEY)",
    "INSERT INTO parent SELECT generate_series(1, 9)",
    "CREATE TABLE t (id int PRIMARY KEY, parent int REFERENCES parent, n int)",
    "INSERT INTO t VALUES (1, 1, 1), (2, 1, 1), (3, 1, 1)",
)
FILE = "id,parent,n\n1,1,5\n2,1,1\n3,1,5\n11,2,5\n12,3,5\n13,2,5\n"


async def test_insert_fails_row_when_another_session_inserts_its_key(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(*TABLES, "DELETE FROM t")
    async with meanwhile(monkeypatch, scene, "INSERT INTO t VALUES (12, 1, 0)"):
        job = await scene.run(FILE, "t")
    assert await scene.errors(job) == [(5, "id.exists")]
    assert await scene.rows("SELECT id, n FROM t ORDER BY 1") == [(1, 5), (2, 1), (3, 5), (11, 5), (12, 0), (13, 5)]


async def test_upsert_updates_row_when_another_session_inserts_its_key(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(*TABLES)
    async with meanwhile(monkeypatch, scene, "INSERT INTO t VALUES (12, 1, 0)"):
        job = await scene.run(FILE, "t", mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (2, 3, 1))
    assert await scene.rows("SELECT id, parent, n FROM t WHERE id = 12") == [(12, 3, 5)]


async def test_upsert_fails_rows_when_another_session_deletes_their_parent(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(*TABLES)
    async with meanwhile(monkeypatch, scene, "DELETE FROM parent WHERE id = 2"):
        job = await scene.run(FILE, "t", mode="upsert")
    assert await scene.errors(job) == [(4, "parent.unknown_reference"), (6, "parent.unknown_reference")]
    assert await scene.effects(job) == (1, 2, 1)


async def test_upsert_inserts_row_when_another_session_deletes_it_before_update(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(*TABLES)
    async with meanwhile(monkeypatch, scene, "DELETE FROM t WHERE id IN (1, 2)"):
        job = await scene.run(FILE, "t", mode="upsert")
    assert (job.status, await scene.effects(job)) == ("completed", (5, 1, 0))
    assert await scene.rows("SELECT id, n FROM t WHERE id < 4 ORDER BY 1") == [(1, 5), (2, 1), (3, 5)]


async def test_two_concurrent_upserts_of_same_keys_both_complete(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, n int)")
    ids = [
        await scene.submit("id,n\n" + "".join(f"{i},{n}\n" for i in order), "t", mode="upsert")
        for n, order in ((1, range(3_000)), (2, range(2_999, -1, -1)))
    ]
    jobs = [await scene.finish(ids[0], drains=3), await scene.finish(ids[1])]
    assert [job.status for job in jobs] == ["completed", "completed"]
    effects = [sum(one) for one in zip(*[await scene.effects(job) for job in jobs], strict=True)]
    assert (effects, await scene.count("t")) == ([3_000, 3_000, 0], 3_000)


async def test_row_references_within_batch_are_resolved_in_any_order(scene: Scene) -> None:
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t, n int CHECK (n > 0))")
    job = await scene.run("id,boss,n\n3,2,1\n2,1,1\n1,,1\n5,4,1\n4,9,1\n7,6,1\n6,1,0\n8,8,1\n", "t")
    assert await scene.rows("SELECT id FROM t ORDER BY 1") == [(1,), (2,), (3,), (8,)]
    assert await scene.errors(job) == [
        (4, "boss.unknown_reference"),
        (5, "boss.unknown_reference"),
        (6, "boss.unknown_reference"),
        (7, "n.too_small"),
    ]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize("order", ["parents first", "children first", "anyhow"])
async def test_row_references_to_other_batches_wait_until_target_is_imported(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str, order: str
) -> None:
    small_batches(monkeypatch, 7)
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t, n int CHECK (n > 0))")
    people = {n: n // 3 or None for n in range(1, 91)} | {91: 900, 92: 91, 93: 92, 94: 95}
    ids = sorted(people, reverse=order == "children first")
    if order == "anyhow":
        random.Random(3).shuffle(ids)
    text = "id,boss,n\n" + "".join(f"{n},{people[n] or ''},1\n" for n in ids) + "95,1,0\n"
    job = await scene.finish(await scene.submit(text, "t", mode=mode), drains=2)
    assert await scene.rows("SELECT id FROM t ORDER BY 1") == [(n,) for n in range(1, 91)]
    failed = {ids[row - 1] for row, code in await scene.errors(job) if code == "boss.unknown_reference"}
    assert (failed, job.counts.failed) == ({91, 92, 93, 94}, 5)
    assert (job.status, await scene.effects(job)) == ("completed_with_errors", (90, 0, 0))


async def test_dry_run_reports_that_references_to_other_batches_are_unchecked(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 2)
    await scene.table("CREATE TABLE t (id int PRIMARY KEY, boss int REFERENCES t)")
    job = await scene.run("id,boss\n2,1\n1,\n3,1\n4,3\n", "t", validate_only=True)
    hint = "a dry run does not search other batches"
    assert [(row, hint in error["reason"]) for row, _, error in await scene.outcomes(job)] == [(3, True), (4, True)]


async def test_upsert_with_rejections_and_concurrent_inserts_has_no_self_conflict(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.table(
        "CREATE TABLE t (id int PRIMARY KEY, n int, code int UNIQUE)",
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN IF NEW.n = 0 THEN RAISE ''no''; END IF; RETURN NEW; END'",
        "CREATE TRIGGER refuse BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    write, left = landing._write_atomically, [6, 7, 8]

    async def beside_another(*args: Any, **options: Any) -> Any:
        if left:
            id_ = left.pop()
            await scene.rows("INSERT INTO t VALUES (%s, 7, %s)", id_, id_)
        return await write(*args, **options)

    monkeypatch.setattr(landing, "_write_atomically", beside_another)
    text = "id,n,code\n" + "".join(f"{i},{i != 5:d},{i}\n" for i in range(1, 13))
    job = await scene.run(text, "t", mode="upsert")
    assert await scene.errors(job) == [(5, "refused")]
    assert (await scene.effects(job), left) == ((8, 3, 0), [])
