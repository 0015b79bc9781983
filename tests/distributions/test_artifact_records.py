"""Files are recorded with the outcomes, behind the fence: by the lease holder, or by the parent of a dead child."""

from functools import partial
from pathlib import Path

import pytest

from distributions.scenes import Scene, given
from support import FAILED, RETRY, Workers, closed, rows, shift_clock, take, verdict
from tidemill.core.batch import Lease
from tidemill.core.decide import Verdict
from tidemill.core.errors import Conflict
from tidemill.core.status import ItemStatus
from tidemill.distributions.artifact_records import record_artifacts_and_count_reuse
from tidemill.jobs import job_control
from tidemill.jobs.reprocessing import reprocess_items
from tidemill.store import batch_leases
from tidemill.store.database import Database
from tidemill.store.jsonb import encode_json
from tidemill.store.outcome_flush import FlushResult, flush_outcomes
from tidemill.store.reprocess_items import ReprocessSelection


def told(seq: int, path: str, *, reused: bool = False) -> Verdict:
    result = {"path": path, "name": "n", "rows": 1, "size": 2, "sha256": "00", "format": "csv", "reused": reused}
    result |= {"dataset": "prices", "input_key": f"key {seq}"}
    return Verdict(seq, ItemStatus.DONE, 1, 1, encode_json(result))


async def flush_with_artifacts(db: Database, lease: Lease, verdicts: list[Verdict]) -> FlushResult:
    """Flush as the engine does for this kind: with the hook of its handler."""
    hook = partial(record_artifacts_and_count_reuse, fingerprints={"prices": "1"})
    return await db.run(flush_outcomes, lease, verdicts, lease_s=30.0, after_flush=hook)


async def test_lease_expired_worker_cannot_register_artifacts(scene: Scene) -> None:
    job_id = await scene.submit(given("A"), given("B"))
    zombie = await take(scene.db, job_id, worker="zombie")
    await shift_clock(scene.db, "1 hour")
    await scene.db.run(batch_leases.reclaim_expired_leases)
    heir = await take(scene.db, job_id, worker="heir")
    assert await flush_with_artifacts(scene.db, zombie, [told(0, "stale"), told(1, "stale")]) is FlushResult.STALE
    assert await scene.artifacts() == []
    assert (await scene.files(job_id)).generated == 0
    assert (
        await flush_with_artifacts(scene.db, heir, [told(0, "good"), told(1, "good", reused=True)])
        is FlushResult.APPLIED
    )
    assert (
        await flush_with_artifacts(scene.db, heir, [told(0, "good"), told(1, "good", reused=True)])
        is FlushResult.ALREADY
    )
    assert [path for _, path, *_ in await scene.artifacts()] == ["good"], "reused files are not recorded"
    files = await scene.files(job_id)
    assert (files.generated, files.reused) == (1, 1)


async def test_only_done_items_register_artifacts(scene: Scene) -> None:
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    await flush_with_artifacts(scene.db, lease, [told(0, "a"), verdict(1, RETRY, delay=1)])
    assert [path for _, path, *_ in await scene.artifacts()] == ["a"]


async def test_equal_inputs_of_one_job_register_one_artifact(scene: Scene) -> None:
    """A fix may make two inputs of one job equal."""
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    first, second = told(0, "first"), told(1, "second")
    second = second._replace(result=(second.result or b"").replace(b"key 1", b"key 0"))
    await flush_with_artifacts(scene.db, lease, [first, second])
    assert [path for _, path, *_ in await scene.artifacts()] == ["second"]


async def test_reprocess_of_done_input_is_rejected_and_keeps_its_file(scene: Scene) -> None:
    """Other jobs reuse the file and identify it by its hash."""
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    await flush_with_artifacts(scene.db, lease, [told(0, "a"), verdict(1, FAILED)])
    find_kind_hooks = scene.runtime.find_kind_hooks
    only_done, done_and_failed = (
        ReprocessSelection([ItemStatus.DONE]),
        ReprocessSelection([ItemStatus.DONE, ItemStatus.FAILED]),
    )
    with pytest.raises(Conflict, match="Submit a new distribution"):
        await reprocess_items(scene.db, job_id, only_done, find_kind_hooks=find_kind_hooks)
    with pytest.raises(Conflict, match="Submit a new distribution"):
        await scene.mill.reprocess_async(job_id, statuses=["done"])
    operation = await reprocess_items(scene.db, job_id, done_and_failed, find_kind_hooks=find_kind_hooks)
    assert operation.items == 1
    assert (await take(scene.db, job_id)).seqs == (1,)


async def test_parent_registers_artifacts_finished_by_crashed_child(scene: Scene, workers: Workers) -> None:
    """The child dies before any flush. Only the file of the input that killed it is generated twice."""
    folder = Path(scene.settings.home)
    workers.app(f"""
        calls = {str(folder / "calls")!r}

        @mill.dataset("letters", fields={{"to": "text"}}, columns=["to"], read=["user"])
        async def letters(given):
            with open(calls, "a") as file:
                file.write(given["to"] + "\\n")
            if given["to"] == "KILLER" and open(calls).read().count("KILLER") == 1:
                await asyncio.sleep(0.5)
                os.kill(os.getpid(), 9)
            yield (given["to"],)
    """)
    scene.mill.dataset("letters", fields={"to": "text"}, columns=["to"], read=["user"])
    scene.mill.registry.declarations.dataset_functions["letters"] = lambda _: []
    names = [*(f"P{n}" for n in range(20)), "KILLER"]
    job_id = await scene.submit_these([{"to": name} for name in names], "letters", {"mode": "continue"})
    workers.start(flush_interval_ms=60_000, batch_size=400)
    job = await closed(scene.db, job_id)
    assert (job.status, job.counts.done) == ("completed", len(names))
    calls = (folder / "calls").read_text().split()
    assert sorted(calls) == sorted([*names, "KILLER"])
    assert len(await scene.artifacts()) == len(names)
    assert (await scene.files(job_id)).generated == len(names)
    await scene.assert_whole()


async def test_deleted_job_keeps_its_artifacts_for_reuse(scene: Scene) -> None:
    job_id = await scene.submit()
    (made,) = await scene.finish(job_id)
    await job_control.delete_job(scene.db, job_id)
    assert await rows(scene.db, "SELECT count(*) FROM tidemill.delivery") == [(0,)]
    (again,) = await scene.run()
    assert again["reused"]
    assert again["path"] == made["path"]
