"""Changes of the target table during an import: the job fails with a reason, and can be completed after the repair."""

from typing import Any
from uuid import UUID

import pytest

from imports.scenes import Scene, look_at, meanwhile, small_batches, with_fields
from support import rows
from tidemill.core.status import ItemStatus
from tidemill.engine import batch_handler_executor
from tidemill.engine.lane import Lane
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.telemetry.events import Event, subscribe
from tidemill.testing import drain

FILE = "id,name\n" + "".join(f"{n},n{n}\n" for n in range(100))
TABLE = "CREATE TABLE t (id int PRIMARY KEY, name text)"


async def break_after_a_batch(scene: Scene, monkeypatch: pytest.MonkeyPatch, job_id: UUID, *statements: str) -> None:
    """Run the import, and run these statements after a batch is done."""
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
    ("ALTER TABLE t RENAME TO gone", "ALTER TABLE gone RENAME TO t", "the table does not exist"),
    ("ALTER TABLE t RENAME name TO title", "ALTER TABLE t RENAME title TO name", "a column does not exist"),
    (
        "ALTER TABLE t ALTER name TYPE int USING 1",
        "ALTER TABLE t ALTER name TYPE text USING 'n' || id",
        "the type of a column has changed",
    ),
]
OF_A_KEY = (  # an insert does not fail: a text column accepts every number
    "ALTER TABLE t ALTER id TYPE text",
    "ALTER TABLE t ALTER id TYPE int USING id::int",
    "the type of a column has changed",
)


@pytest.mark.parametrize(
    ("mode", "break_it", "repair", "says"),
    [*(("insert", *change) for change in CHANGES), *(("upsert", *change) for change in [*CHANGES, OF_A_KEY])],
)
async def test_target_table_change_fails_import_and_reprocess_completes_it(
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
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED]))
    job = await scene.finish(job_id)
    assert (job.status, job.failure_reason) == ("completed", None)
    assert await scene.rows("SELECT count(*), min(name), max(id) FROM t") == [(100, "n0", 99)]


async def test_import_waits_for_worker_that_declares_its_normalizer(scene: Scene) -> None:
    await scene.table(TABLE)
    resource = with_fields(await look_at(scene.db, "t"), name={"normalize": ("title",)})
    job = await scene.run(FILE, "t", resource=resource)
    assert (job.status, job.counts.total) == ("pending", 0), "the worker does not read the file either"
    scene.mill.normalizer("title")(str.title)
    job = await scene.finish(job.id)
    assert (job.status, job.counts.done) == ("completed", 100)
    assert await scene.rows("SELECT min(name) FROM t") == [("N0",)]


async def test_temporary_full_disk_delays_import_without_failing_rows(scene: Scene) -> None:
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


async def test_permanent_full_disk_fails_import_and_reprocess_completes_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_handler_executor, "MAX_TRANSIENT_ATTEMPTS", 3)
    await scene.table(
        TABLE,
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE disk_full; END $$",
        "CREATE TRIGGER full_disk BEFORE INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
    )
    told: list[Event] = []
    end = subscribe(told.append)
    job = await scene.run(FILE, "t")
    end()
    assert (job.status, await scene.count("t")) == ("failed", 0)
    assert (job.failure_reason or "").startswith("The database server is out of disk space: ")
    tries = [fields for name, fields in told if name == "database.retry"]
    assert [fields["attempt"] for fields in tries] == [1, 2]
    await rows(scene.db, "DROP TRIGGER full_disk ON t")
    await reprocess_items(scene.db, job.id, ReprocessSelection([ItemStatus.CANCELLED]))
    job = await scene.finish(job.id)
    assert (job.status, await scene.count("t")) == ("completed", 100)


async def test_locked_row_fails_alone_when_lock_timeout_expires(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_handler_executor, "BATCH_LOCK_TIMEOUT_S", 0.1)
    await scene.table(TABLE)
    async with scene.db.transaction() as other:
        await other.execute(b"SET LOCAL idle_in_transaction_session_timeout = 0; INSERT INTO t VALUES (42, 'theirs')")
        job = await scene.run(FILE, "t")
        assert await scene.count("t") == 99
    [(row, status, error)] = await scene.outcomes(job)
    assert (job.status, row, status) == ("completed_with_errors", 43, "failed")
    assert "lock timeout" in error["reason"]
    await rows(scene.db, "DELETE FROM t WHERE id = 42")
    await reprocess_items(scene.db, job.id, ReprocessSelection())
    assert (await scene.finish(job.id)).status == "completed"


async def test_cancelled_import_finishes_current_batch_and_cancels_remaining_rows(
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
async def test_failure_policy_fails_import_when_too_many_rows_fail(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, policy: dict[str, Any], failed: int
) -> None:
    small_batches(monkeypatch, 10)
    await scene.table(TABLE)
    text = "id,name\n" + "".join(f"{n if n % 10 else 'x'},n{n}\n" for n in range(100))
    job = await scene.run(text, "t", policy=policy)
    assert (job.status, job.counts.failed, await scene.count("t")) == ("failed", failed, failed * 9)
    assert job.counts.cancelled == 100 - 10 * failed
    assert job.failure_reason
