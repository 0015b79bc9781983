"""The registry is written with the outcomes, behind the fence: by whoever holds the lease, or speaks for the dead."""

from pathlib import Path

import pytest

from distribution.scenes import Scene, given
from support import FAILED, RETRY, Workers, closed, rows, settle, shift_clock, take, verdict
from tidemill.domain.decide import Verdict
from tidemill.domain.errors import Conflict
from tidemill.domain.status import ItemStatus
from tidemill.operations import control
from tidemill.operations.reprocess import reprocess
from tidemill.store import leases
from tidemill.store.flush import Flushed
from tidemill.store.json import encode
from tidemill.store.reprocess import Choice


def told(seq: int, path: str, *, reused: bool = False) -> Verdict:
    result = {"path": path, "name": "n", "rows": 1, "size": 2, "sha256": "00", "format": "csv", "reused": reused}
    result |= {"dataset": "prices", "input_key": f"key {seq}"}
    return Verdict(seq, ItemStatus.DONE, 1, 1, encode(result))


async def test_a_worker_that_lost_its_lease_changes_nothing(scene: Scene) -> None:
    job_id = await scene.submit(given("A"), given("B"))
    zombie = await take(scene.db, job_id, worker="zombie")
    await shift_clock(scene.db, "1 hour")
    await scene.db.run(leases.sweep)
    heir = await take(scene.db, job_id, worker="heir")
    assert await settle(scene.db, zombie, [told(0, "stale"), told(1, "stale")]) is Flushed.STALE
    assert await scene.artifacts() == []
    assert (await scene.files(job_id)).generated == 0
    assert await settle(scene.db, heir, [told(0, "good"), told(1, "good", reused=True)]) is Flushed.APPLIED
    assert await settle(scene.db, heir, [told(0, "good"), told(1, "good", reused=True)]) is Flushed.ALREADY
    assert [path for _, path, *_ in await scene.artifacts()] == ["good"], "what is used again is not registered"
    files = await scene.files(job_id)
    assert (files.generated, files.reused) == (1, 1)


async def test_only_done_items_are_registered(scene: Scene) -> None:
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    await settle(scene.db, lease, [told(0, "a"), verdict(1, RETRY, delay=1)])
    assert [path for _, path, *_ in await scene.artifacts()] == ["a"]


async def test_two_items_that_mean_the_same_are_one_artifact(scene: Scene) -> None:
    """A correction may make two inputs of one job equal."""
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    first, second = told(0, "first"), told(1, "second")
    second.result = (second.result or b"").replace(b"key 1", b"key 0")
    await settle(scene.db, lease, [first, second])
    assert [path for _, path, *_ in await scene.artifacts()] == ["second"]


async def test_a_file_that_was_made_is_never_replaced_by_sending_its_input_round(scene: Scene) -> None:
    """Others use it again, and know it by its hash."""
    job_id = await scene.submit(given("A"), given("B"))
    lease = await take(scene.db, job_id)
    await settle(scene.db, lease, [told(0, "a"), verdict(1, FAILED)])
    with pytest.raises(Conflict, match="ask for another distribution"):
        await reprocess(scene.db, job_id, Choice([ItemStatus.DONE]))
    operation = await reprocess(scene.db, job_id, Choice([ItemStatus.DONE, ItemStatus.FAILED]))
    assert operation.items == 1
    assert (await take(scene.db, job_id)).seqs == (1,)


async def test_what_a_dead_child_had_finished_is_registered_by_its_parent(scene: Scene, workers: Workers) -> None:
    """Nothing is flushed before the child dies; no file is made twice but that of the input that killed it."""
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
    scene.mill.registry.producers["letters"] = lambda _: []
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


async def test_a_deleted_job_leaves_its_files_and_their_registry(scene: Scene) -> None:
    job_id = await scene.submit()
    (made,) = await scene.finish(job_id)
    await control.delete(scene.db, job_id)
    assert await rows(scene.db, "SELECT count(*) FROM tidemill.delivery") == [(0,)]
    (again,) = await scene.run()
    assert again["reused"]
    assert again["path"] == made["path"]
