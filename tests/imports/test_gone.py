"""The target changes under the import: the job fails and says why, and the rest comes back after the repair."""

from typing import Any
from uuid import UUID

import pytest

from imports.scenes import Scene, look_at, meanwhile, small_batches, with_fields
from support import rows
from tidemill.domain.status import ItemStatus
from tidemill.engine import batchwise
from tidemill.engine.worker import Lane
from tidemill.operations.reprocess import reprocess
from tidemill.store.reprocess import Choice
from tidemill.telemetry.events import subscribe
from tidemill.testing import drain

FILE = "id,name\n" + "".join(f"{n},n{n}\n" for n in range(100))
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text)"


async def break_after_a_batch(scene: Scene, monkeypatch: pytest.MonkeyPatch, job_id: UUID, *statements: str) -> None:
    """Run the import; when a batch is done these statements are run."""
    tick, left = Lane.tick, list(statements)

    async def breaking(self: Lane) -> float:
        done = await tick(self)
        while left and await scene.count("t"):
            await rows(scene.db, left.pop(0))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Lane, "tick", breaking)
        await drain(scene.mill, db=scene.db)
    assert not left


CHANGES = [
    ("ALTER TABLE t RENAME TO gone", "ALTER TABLE gone RENAME TO t", "the table is gone"),
    ("ALTER TABLE t RENAME name TO title", "ALTER TABLE t RENAME title TO name", "a column is gone"),
    (
        "ALTER TABLE t ALTER name TYPE int USING 1",
        "ALTER TABLE t ALTER name TYPE text USING 'n' || id",
        "a column has another type now",
    ),
]
OF_A_KEY = (  # an insert finds nothing wrong with it: a text takes every number
    "ALTER TABLE t ALTER id TYPE text",
    "ALTER TABLE t ALTER id TYPE int USING id::int",
    "a column has another type now",
)


@pytest.mark.parametrize(
    ("mode", "break_it", "repair", "says"),
    [*(("insert", *change) for change in CHANGES), *(("upsert", *change) for change in [*CHANGES, OF_A_KEY])],
)
async def test_a_table_that_changes_in_mid_import(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, mode: str, break_it: str, repair: str, says: str
) -> None:
    small_batches(monkeypatch, 10)
    await scene.table(TABLE)
    job_id = await scene.submit(FILE, "t", mode=mode)
    await break_after_a_batch(scene, monkeypatch, job_id, break_it)
    job = await scene.finish(job_id)
    assert job.status == "failed"
    assert says in (job.failure_reason or "")
    assert job.counts.failed == 0
    assert job.counts.cancelled == 100 - job.counts.done
    await scene.table(repair)
    await reprocess(scene.db, job_id, Choice(statuses=[ItemStatus.CANCELLED]))
    job = await scene.finish(job_id)
    assert (job.status, job.failure_reason) == ("completed", None)
    assert await scene.rows("SELECT count(*), min(name), max(id) FROM t") == [(100, "n0", 99)]


async def test_a_normalizer_that_a_worker_does_not_have_fails_the_job_and_no_row(scene: Scene) -> None:
    await scene.table(TABLE)
    resource = with_fields(await look_at(scene.db, "t"), name={"normalize": ("title",)})
    job = await scene.run(FILE, "t", resource=resource)
    assert (job.status, job.counts.failed, job.counts.cancelled) == ("failed", 0, 100)
    assert "a normalizer 'title', which nobody has declared here" in (job.failure_reason or "")


async def test_a_disk_that_is_full_for_a_while_holds_the_import_up_and_costs_no_row(scene: Scene) -> None:
    await scene.table(
        TABLE,
        "CREATE SEQUENCE tries",
        """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF nextval('tries') < 4 THEN RAISE disk_full; END IF; RETURN NULL; END $$""",
        "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
    )
    job = await scene.run(FILE, "t")
    assert (job.status, await scene.count("t")) == ("completed", 100)
    assert (await scene.rows("SELECT last_value FROM tries"))[0][0] >= 4


async def test_a_disk_that_stays_full_fails_the_import_with_the_reason_and_it_goes_on_afterwards(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchwise, "MAX_FULL", 3)
    await scene.table(
        TABLE,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
    )
    told: list[tuple[str, dict[str, Any]]] = []
    end = subscribe(lambda name, fields: told.append((name, fields)))
    job = await scene.run(FILE, "t")
    end()
    assert (job.status, await scene.count("t")) == ("failed", 0)
    assert (job.failure_reason or "").startswith("the database has no room: ")
    tries = [fields for name, fields in told if name == "database.retry"]
    assert [fields["attempt"] for fields in tries] == [1, 2]
    await rows(scene.db, "DROP TRIGGER full_disk ON t")
    await reprocess(scene.db, job.id, Choice([ItemStatus.CANCELLED]))
    job = await scene.finish(job.id)
    assert (job.status, await scene.count("t")) == ("completed", 100)


async def test_a_row_that_somebody_else_keeps_locked_fails_and_the_others_do_not_wait_for_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batchwise, "LOCKED_S", 0.1)
    await scene.table(TABLE)
    async with scene.db.transaction() as other:
        await other.execute(b"SET LOCAL idle_in_transaction_session_timeout = 0; INSERT INTO t VALUES (42, 'theirs')")
        job = await scene.run(FILE, "t")
        assert await scene.count("t") == 99
    [(row, status, error)] = await scene.outcomes(job)
    assert (job.status, row, status) == ("completed_with_errors", 43, "failed")
    assert "lock timeout" in error["reason"]
    await rows(scene.db, "DELETE FROM t WHERE id = 42")
    await reprocess(scene.db, job.id, Choice())
    assert (await scene.finish(job.id)).status == "completed"


async def test_a_cancelled_import_keeps_the_batch_in_hand_and_cancels_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_batches(monkeypatch, 10)
    await scene.table(TABLE)
    job_id = await scene.submit(FILE, "t")
    async with meanwhile(monkeypatch, scene, f"UPDATE tidemill.job SET intent = 'cancel' WHERE id = '{job_id}'"):
        job = await scene.finish(job_id)
    assert job.status == "cancelled"
    assert (job.counts.done, job.counts.cancelled, await scene.count("t")) == (10, 90, 10)


@pytest.mark.parametrize(("policy", "failed"), [({"mode": "fail_fast"}, 1), ({"mode": "tolerate", "max_failed": 2}, 3)])
async def test_a_policy_ends_an_import_that_has_too_many_errors(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], failed: int
) -> None:
    small_batches(monkeypatch, 10)
    await scene.table(TABLE)
    text = "id,name\n" + "".join(f"{n if n % 10 else 'x'},n{n}\n" for n in range(100))
    job = await scene.run(text, "t", policy=policy)
    assert (job.status, job.counts.failed, await scene.count("t")) == ("failed", failed, failed * 9)
    assert job.counts.cancelled == 100 - 10 * failed
    assert job.failure_reason
