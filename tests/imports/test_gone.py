"""The target changes under the import: the job fails and says why, and the rest comes back after the repair."""

from uuid import UUID

import pytest

from imports.scenes import Scene, small_batches
from support import rows
from tidemill.domain.status import ItemStatus
from tidemill.engine.worker import Lane
from tidemill.operations.reprocess import reprocess
from tidemill.store.reprocess import Choice
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
