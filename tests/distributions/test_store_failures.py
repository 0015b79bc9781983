"""Distributions with stores that deny access or are unavailable, and redrive of failed distributions."""

import hashlib
import os
import signal
from pathlib import Path

import pytest

from distributions.scenes import PRICES, QUERY, Scene, given, statuses
from support import Workers, assert_sound, closed, eventually, job_of, rows
from support.s3 import S3Server
from tidemill.config import Settings
from tidemill.core.job import Item
from tidemill.core.outcome import Fail, Wait
from tidemill.core.policies import UNCHARGED_THROTTLES_MAX
from tidemill.distributions import handler
from tidemill.files.blobs import open_blob_store
from tidemill.jobs.reprocessing import run_dead_letter_operation
from tidemill.store.database import Database
from tidemill.testing import drain
from tidemill.testing.drain import make_batches_due


async def test_fail_fast_distribution_completes_after_redrive(scene: Scene) -> None:
    broken = {"is": True}

    def letters(given: dict[str, str]) -> list[dict[str, str]]:
        if given["to"] == "P5" and broken["is"]:
            raise Fail("out of ink")
        return [given]

    scene.mill.dataset("letters", fields={"to": "text"}, read=["user"])(letters)
    scene.settings = scene.settings.model_copy(update={"claim_max": 10})
    job_id = await scene.submit_these([{"to": f"P{n}"} for n in range(200)], "letters")
    content = await scene.finish(job_id)
    job = await scene.job(job_id)
    assert job.status == "failed"
    assert job.failure_reason == 'An item failed; the failure policy is "fail_fast"'
    assert job.counts.failed == 1
    assert job.counts.cancelled > 0
    assert statuses(content)[5] == "failed"
    broken["is"] = False
    operation = await run_dead_letter_operation(scene.db, owner_id=None, filters={"jobs": [str(job_id)]})
    assert operation.items == job.counts.failed + job.counts.cancelled
    assert (await scene.job(job_id)).status == "running"
    assert statuses(await scene.finish(job_id)) == ["done"] * 200
    assert (await scene.job(job_id)).status == "completed"
    assert (await scene.files(job_id)).generated == 200
    assert len(await scene.artifacts()) == len(scene.stored()) == 200
    await scene.assert_whole()


async def test_store_denying_access_fails_input_without_retry(
    scene: Scene, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(scene, s3.blobs_url("denied"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    job_id = await scene.submit()
    (failed,) = await scene.finish(job_id)
    assert failed["error"]["code"] == "store_denied"
    assert failed["attempts"] == 1
    assert (await scene.job(job_id)).status == "failed"


async def test_unwritable_folder_fails_input_after_all_attempts(scene: Scene) -> None:
    place = Path(scene.settings.home) / "full"
    place.write_text("a file where a folder should be")
    use(scene, str(place / "blobs"))
    job_id = await scene.submit()
    (failed,) = await scene.finish(job_id)
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "exhausted"
    assert failed["attempts"] == scene.settings.distribution_max_attempts
    retried = UNCHARGED_THROTTLES_MAX + scene.settings.distribution_max_attempts - 1
    assert (await scene.job(job_id)).retried == retried


async def test_outage_of_store_does_not_count_as_attempts(scene: Scene) -> None:
    place = Path(scene.settings.home) / "away"
    place.write_text("a file where a folder should be")
    use(scene, str(place / "blobs"))
    job_id = await scene.submit()
    for _ in range(scene.settings.distribution_max_attempts + 2):
        await scene.db.run(make_batches_due)
        await drain(scene.mill, db=scene.db, retries=False)
    (waiting_input,) = await scene.content(job_id)
    assert (waiting_input["status"], waiting_input["error"]["code"]) == ("retry_wait", "store_unavailable")
    place.unlink()
    (done,) = await scene.finish(job_id)
    assert (done["status"], done["attempts"]) == ("done", 1)


@pytest.mark.parametrize("inputs", [100, pytest.param(1_000, marks=pytest.mark.full)])
async def test_distribution_is_complete_after_worker_and_store_are_killed(
    db: Database, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: int
) -> None:
    await rows(db, f"CREATE TABLE public.prices AS {ROWS}")
    with S3Server(tmp_path / "s3") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        scene = Scene(db, settings)
        use(
            scene,
            server.blobs_url("mill"),
            distribution_max_attempts=50,
            distribution_backoff_ms=100,
            lock_cap_ms=2_500,
        )
        workers = Workers(scene.settings, tmp_path)
        workers.app(f"mill.dataset('prices', **{PRICES | {'query': SLOW}!r})")
        try:
            job_id = await scene.submit(*(given(f"K{n}") for n in range(inputs)))
            worker = workers.start(processes=2)
            await eventually(lambda: settled(db, job_id, inputs // 5))
            os.kill(workers.children(worker)[0], signal.SIGKILL)
            server.kill()
            if inputs > 100:  # the client of the store retries for ten seconds
                await eventually(lambda: waiting(db, job_id))
            os.killpg(worker.pid, signal.SIGKILL)
            server.start()
            workers.start()
            job = await closed(db, job_id, within=180)
        finally:
            workers.end()
        assert (job.status, job.counts.done) == ("completed", inputs)
        files = await scene.files(job_id)
        assert (files.generated, files.reused) == (inputs, 0)
        known = {scene.name(path): (sha256, size) for _, path, sha256, size in await scene.artifacts()}
        assert len(known) == inputs
        seen = {name: (server.folder / "mill" / name).read_bytes() for name in server.list_object_names("mill")}
        assert {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in seen.items()} == known
        assert {one["path"] for one in await scene.content(job_id)} == {path for _, path, *_ in await scene.artifacts()}
        await assert_sound(db, job_id)


ROWS = "SELECT 'K' || k AS index_key, 20240202 AS effective_date, 'CLS' AS asofindicator, n::text AS member, n AS price"
ROWS += " FROM generate_series(0, 999) k, generate_series(1, 20) n"
SLOW = QUERY.replace("FROM public.prices", "FROM (SELECT pg_sleep(0.05)) AS nap, public.prices")


def use(scene: Scene, place: str, **settings: object) -> None:
    scene.settings = scene.settings.model_copy(update={"blobs": place} | settings)
    scene.mill.settings = scene.settings


async def settled(db: Database, job_id: object, least: int) -> bool:
    return (await job_of(db, job_id)).counts.done >= least  # type: ignore[arg-type]


async def waiting(db: Database, job_id: object) -> bool:
    """Return whether an input waits for a retry because the store is unavailable."""
    return (await job_of(db, job_id)).counts.retry_wait > 0  # type: ignore[arg-type]


async def test_late_worker_does_not_replace_file_of_completed_input(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "SETTLED_CHECK_AFTER_S", -1.0)
    job_id = await scene.submit(given("ABC"), reuse_enabled=False)
    blobs = open_blob_store(scene.settings.blobs)
    zombie = handler.DistributionRunner(scene.db, blobs, scene.datasets, handler.DistributionOptions())
    (made,) = await scene.finish(job_id)
    assert made["status"] == "done", "a slow attempt of an unsettled input is not rejected"
    await rows(scene.db, "INSERT INTO public.prices VALUES ('ABC', 20240202, 'CLS', 'new', 1)")
    with pytest.raises(Wait):
        await zombie.process_input(Item(job_id, 0, given("ABC")))
    await scene.assert_whole()
    assert scene.leftovers() == []
