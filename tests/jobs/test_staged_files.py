"""A file is stored before its job is created, and removed if the job is never created."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from jobs.test_submit_routes import CSV, PNG, files
from support import rows, shift_clock
from support.api import Api, share_with_users
from support.import_requests import CSV_TYPE, GOOD, open_shop
from tidemill import Mill
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.files.blobs import open_blob_store

NO_JOBS = """
CREATE FUNCTION no_jobs() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'too many connections' USING ERRCODE = '53300'; END $$"""
REFUSE = "CREATE TRIGGER no_jobs BEFORE INSERT ON tidemill.job FOR EACH ROW EXECUTE FUNCTION no_jobs()"
ALLOW = "DROP TRIGGER no_jobs ON tidemill.job"
WAYS: dict[str, dict[str, Any]] = {
    "upload": {"url": "/v1/jobs?kind=echo", "content": CSV, "headers": CSV_TYPE},
    "images": {"url": "/v1/jobs?kind=echo", "files": {"a": ("a.png", PNG, "image/png")}},
    "source": {"url": "/v1/jobs", "json": {"kind": "echo", "source": {"name": "inbox", "path": "a.csv"}}},
    "import": {"url": "/v1/imports?resource=people", "content": GOOD, "headers": CSV_TYPE},
    "import of a source": {
        "url": "/v1/imports",
        "json": {"resource": "people", "source": {"name": "inbox", "path": "a.csv"}},
    },
}


@pytest.fixture
async def api(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Api:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "a.csv").write_bytes(GOOD)
    found = (await open_shop(make_api, toy, tmp_path, sources={"inbox": share_with_users(inbox)})).api
    await rows(found.db, NO_JOBS)
    return found


async def waiting_to_go(api: Api) -> list[str]:
    return [name for (name,) in await rows(api.db, "SELECT file_id FROM tidemill.unneeded_file ORDER BY 1")]


@pytest.mark.parametrize("way", WAYS)
async def test_uploaded_file_is_deleted_after_retention_when_job_insert_fails(
    api: Api, ada: httpx2.AsyncClient, way: str
) -> None:
    await rows(api.db, REFUSE)
    refused = await ada.post(**WAYS[way])
    assert refused.status_code == 503, refused.text
    abandoned = files(api.settings)
    assert len(abandoned) == 1, "it is unknown whether the job was created"
    await rows(api.db, ALLOW)
    accepted = await ada.post(**WAYS[way])
    assert accepted.status_code == 202, accepted.text
    [(kept,)] = await rows(api.db, "SELECT file_id FROM tidemill.job")
    assert await waiting_to_go(api) == abandoned, "the job owns its file"
    janitor = BlobCleanupLoop(api.db, open_blob_store(api.settings.blobs))
    assert await janitor.remove_unneeded_blobs() == []
    await shift_clock(api.db, "8 days")
    assert await janitor.remove_unneeded_blobs() == abandoned
    assert files(api.settings) == [kept]


async def test_copied_source_file_is_marked_unneeded_when_import_insert_fails(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    assert (await ada.post(**WAYS["import"])).status_code == 202
    [first] = files(api.settings)
    asked = {"resource": "people", "source": {"file_id": first}}
    await rows(api.db, REFUSE)
    assert (await ada.post("/v1/imports", json=asked)).status_code == 503
    [abandoned] = await waiting_to_go(api)
    assert files(api.settings) == sorted([abandoned, first])


async def test_rejected_or_replayed_upload_leaves_no_unneeded_file(api: Api, ada: httpx2.AsyncClient) -> None:
    for url in ("/v1/imports?resource=people", "/v1/jobs?kind=echo"):
        for expected in (202, 200):
            answer = await ada.post(url, content=GOOD, headers=CSV_TYPE | {"Idempotency-Key": "k"})
            assert answer.status_code == expected, answer.text
    assert (await ada.post("/v1/imports?resource=people", content=b"what\n1\n", headers=CSV_TYPE)).status_code == 422
    assert (await ada.post("/v1/imports/preview?resource=people", content=GOOD, headers=CSV_TYPE)).status_code == 200
    late: dict[str, Any] = {"data": {"kind": "echo"}, "files": {"file": ("a.csv", CSV)}}
    assert (await ada.post("/v1/jobs?surprise=1", **late)).status_code == 422
    assert await waiting_to_go(api) == []
    assert len(files(api.settings)) == 2
