"""With duplicates=last, no row is written before the whole file is read, not even a retried one."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from imports.scenes import Scene
from support import RETRY, assert_sound, job_of, settle, take, try_take, verdict
from tidemill.core.batch import Lease
from tidemill.core.status import ItemStatus
from tidemill.engine.ingester import Ingester
from tidemill.imports import key_index
from tidemill.imports.duplicate_detector import DuplicateDetector
from tidemill.jobs import job_control
from tidemill.jobs.job_control import cancel_waiting_items
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store import batch_leases
from tidemill.store.job_lifecycle import CancelSelection, make_items_due
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing import drain

KEYS = 200
TEXT = "k,row\n" + "".join(f"{row % KEYS},{row}\n" for row in range(2 * KEYS))
Act = Callable[[Scene, UUID], Awaitable[Any]]


@pytest.fixture
async def job_id(scene: Scene) -> UUID:
    """An import in chunks of some fifty rows: of each key, the last row is two hundred after the first."""
    await scene.table("CREATE TABLE t (k int PRIMARY KEY, row int)")
    scene.mill.settings = scene.settings.model_copy(update={"ingest_max_rows": 50})
    return await scene.submit(TEXT, "t", duplicates="last")


def after_a_chunk(monkeypatch: pytest.MonkeyPatch, scene: Scene, act: Act) -> None:
    """Call ``act`` once, between two stored chunks."""
    append, left = Ingester._append_chunk, [act]

    async def acting(self: Ingester, job_id: UUID, *args: Any) -> bool:
        appended = await append(self, job_id, *args)
        while left:
            await left.pop()(scene, job_id)
        return appended

    monkeypatch.setattr(Ingester, "_append_chunk", acting)


async def end(scene: Scene, job_id: UUID) -> None:
    await job_control.cancel_job(scene.db, job_id)


async def send_three_round(scene: Scene, job_id: UUID) -> None:
    """Cancel and reprocess three losing rows, twice; the second time they are in a list."""
    for _ in range(2):
        assert (await cancel_waiting_items(scene.db, job_id, CancelSelection(seqs=[3, 4, 5]))).items == 3
        chosen = ReprocessSelection(statuses=[ItemStatus.CANCELLED], seqs=[3, 4, 5])
        assert (await reprocess_items(scene.db, job_id, chosen)).items == 3


async def assert_the_last_have_won(scene: Scene, job_id: UUID) -> None:
    job = await job_of(scene.db, job_id)
    assert await scene.errors(job_id) == []
    assert (job.status, job.counts.done, job.counts.skipped) == ("completed", KEYS, KEYS)
    assert await scene.rows("SELECT min(row), max(row), count(*) FROM t") == [(KEYS, 2 * KEYS - 1, KEYS)]


async def test_resumed_keep_last_import_writes_last_row_of_each_key(
    scene: Scene, job_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_a_chunk(monkeypatch, scene, end)
    cancelled = await scene.finish(job_id)
    assert cancelled.status == "cancelled"
    assert 0 < cancelled.counts.total < KEYS
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED]))
    await scene.finish(job_id)
    await assert_the_last_have_won(scene, job_id)


async def test_rows_reprocessed_during_ingest_still_lose_to_last_row_of_key(
    scene: Scene, job_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_a_chunk(monkeypatch, scene, send_three_round)
    await scene.finish(job_id)
    await assert_the_last_have_won(scene, job_id)


async def hasten(scene: Scene, job_id: UUID, lease: Lease) -> None:
    await settle(scene.db, lease, [verdict(3, RETRY, delay=600)])
    assert (await scene.db.run(make_items_due, job_id, [3], by=0)).due == 1


async def give_back(scene: Scene, _: UUID, lease: Lease) -> None:
    await scene.db.run(batch_leases.release_rest_of_batch, lease, after_crash=True)


async def retry(scene: Scene, _: UUID, lease: Lease) -> None:
    await settle(scene.db, lease, [verdict(3, RETRY, delay=0)])


@pytest.mark.parametrize("comes_back", [hasten, give_back, retry])
async def test_row_requeued_by_worker_waits_for_end_of_file_even_when_due(
    scene: Scene, job_id: UUID, monkeypatch: pytest.MonkeyPatch, comes_back: Callable[..., Awaitable[None]]
) -> None:
    with monkeypatch.context() as patching:
        after_a_chunk(patching, scene, end)
        await scene.finish(job_id)
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED], seqs=[3]))
    lease = await take(scene.db, job_id)  # no worker reads the file meanwhile
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED]))
    await comes_back(scene, job_id, lease)

    async def find_nothing(scene: Scene, job_id: UUID) -> None:
        assert await try_take(scene.db, job_id) is None

    after_a_chunk(monkeypatch, scene, find_nothing)
    await scene.finish(job_id)
    await assert_the_last_have_won(scene, job_id)


async def test_rows_reprocessed_after_cancelled_ingest_run_without_end_of_file(
    scene: Scene, job_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    after_a_chunk(monkeypatch, scene, end)
    read = (await scene.finish(job_id)).counts.total
    assert read < KEYS
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED], seqs=[3, 4, 5]))
    await drain(scene.mill, db=scene.db)
    await assert_sound(scene.db, job_id)
    job = await job_of(scene.db, job_id)
    assert (job.is_closed, job.counts.done, job.counts.cancelled) == (True, 3, read - 3)
    assert await scene.rows("SELECT row FROM t ORDER BY row") == [(3,), (4,), (5,)]


async def test_key_index_files_are_closed_when_resumed_ingest_fills_disk(
    scene: Scene, job_id: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patching:
        after_a_chunk(patching, scene, end)
        await scene.finish(job_id)
    await reprocess_items(scene.db, job_id, ReprocessSelection(statuses=[ItemStatus.CANCELLED]))
    closed, close = [], DuplicateDetector.close

    def closing(intake: DuplicateDetector) -> None:
        closed.append(intake)
        close(intake)

    monkeypatch.setattr(DuplicateDetector, "close", closing)
    monkeypatch.setattr(key_index, "RECENT_KEYS_MAX", 10)
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: Path("/dev/full").open("r+b", buffering=0))  # noqa: SIM115
    assert (await scene.finish(job_id)).status == "failed"
    assert len(closed) == 1
