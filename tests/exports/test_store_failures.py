"""Table exports to stores that deny access, are full, or are unavailable: a complete file, or none and an error."""

from pathlib import Path
from uuid import UUID

import pytest

from exports.scenes import Scene, with_people
from support import assert_sound, file_of, job_of, rows
from support.result_exports import failing
from support.s3 import S3Server
from tidemill import Mill
from tidemill.core.errors import Conflict
from tidemill.core.status import JobStatus
from tidemill.exports.use_cases import read_export_file_info
from tidemill.testing import drain


@pytest.fixture
async def scene(scene: Scene) -> Scene:
    return await with_people(scene)


def into(scene: Scene, place: str) -> Scene:
    settings = scene.settings.model_copy(update={"blobs": place})
    return Scene(scene.db, settings, Mill(settings))


async def fate(scene: Scene, job_id: UUID) -> tuple[str, str, int]:
    """Return the status, the error code and the number of attempts of the export."""
    query = "SELECT status, error->>'code', attempts FROM tidemill.outcome WHERE job_id = %s"
    [(status, code, attempts)] = await rows(scene.db, query, job_id)
    return status, code, attempts


async def test_store_denying_access_fails_export_with_reason(
    scene: Scene, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    job = await into(scene, s3.blobs_url("denied")).made("people")
    assert job.status is JobStatus.FAILED
    assert await fate(scene, job.id) == ("failed", "store_denied", 1)
    with pytest.raises(Conflict, match=r"has no file .*Access to .* denied"):
        await read_export_file_info(scene.db, job)


@pytest.mark.parametrize("format_", ["csv", "xlsx", "parquet"])
@pytest.mark.parametrize("verb", ["write", "finish"])
async def test_full_disk_leaves_no_file_and_table_export_is_retried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, format_: str, verb: str
) -> None:
    failing(monkeypatch, verb, times=1)
    job_id = await scene.submit("people", format=format_)
    await drain(scene.mill, retries=False, db=scene.db)
    assert scene.stored() == []
    assert (await job_of(scene.db, job_id)).counts.retry_wait == 1
    await drain(scene.mill, db=scene.db)
    assert (await job_of(scene.db, job_id)).status is JobStatus.COMPLETED
    assert scene.stored() == [await file_of(scene.db, job_id)]
    await assert_sound(scene.db, job_id)


async def test_unwritable_folder_fails_export_after_all_attempts(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    job = await into(scene, str(tmp_path / "file" / "blobs")).made("people")
    assert job.status is JobStatus.FAILED
    assert await fate(scene, job.id) == ("failed", "exhausted", 3)
    with pytest.raises(Conflict, match="Cannot write to the blob store folder"):
        await read_export_file_info(scene.db, job)


async def test_store_outage_delays_export_until_store_is_back(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with S3Server(tmp_path / "s3") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        there = into(scene, server.blobs_url("mill"))
        server.kill()
        job_id = await there.submit("people")
        await drain(there.mill, retries=False, db=there.db)
        assert (await job_of(there.db, job_id)).counts.retry_wait == 1
        server.start()
        await drain(there.mill, db=there.db)
        assert (await job_of(there.db, job_id)).status is JobStatus.COMPLETED
        assert list(server.list_object_names("mill")) == [await file_of(there.db, job_id)]
