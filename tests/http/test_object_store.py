"""The service with files in a bucket: uploads, downloads, and outages of the store."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest

from support import Workers, closed, eventually, rows
from support.api import Api
from support.import_requests import Shop, open_shop
from support.s3 import S3Server
from tidemill import Mill
from tidemill.config import Settings
from tidemill.core.status import JobStatus
from tidemill.engine.maintenance_loop import BlobCleanupLoop
from tidemill.files.blobs import open_blob_store
from tidemill.store.database import Database
from tidemill.testing import drain

CSV = {"content-type": "text/csv"}


@pytest.fixture
def prefix() -> str:
    return f"files/{uuid4().hex[:8]}"


@pytest.fixture
def settings(settings: Settings, s3: S3Server, prefix: str) -> Settings:
    return settings.model_copy(update={"blobs": s3.blobs_url(prefix)})


@pytest.fixture
def mortal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Iterator[S3Server]:
    """A separate object store server that the test kills."""
    with S3Server(tmp_path / "mortal") as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


async def exported(api: Api, who: httpx2.AsyncClient, toy: Mill, inputs: list[Any]) -> str:
    """Return the download path of a finished export."""
    job = (await who.post("/v1/jobs", json={"kind": "echo", "inputs": inputs})).json()["id"]
    await drain(toy, db=api.db)
    path = (await who.post(f"/v1/jobs/{job}/export?format=ndjson")).headers["location"]
    await drain(toy, db=api.db)
    return f"{path}/download"


async def test_upload_to_bucket_is_processed_and_deleted_with_its_job(
    api: Api, ada: httpx2.AsyncClient, toy: Mill, s3: S3Server, prefix: str
) -> None:
    body = b"sku,name\n" + b"".join(b"%d,%s\n" % (n, b"x" * 1_000) for n in range(12_000))
    answer = await ada.post("/v1/jobs?kind=echo", content=body, headers=CSV)
    assert answer.status_code == 202, answer.text
    [stored] = s3.list_object_names(prefix)
    assert (s3.folder / prefix / stored).read_bytes() == body
    await drain(toy, db=api.db)
    job = (await ada.get(f"/v1/jobs/{answer.json()['id']}")).json()
    assert (job["status"], job["counts"]["done"]) == ("completed", 12_000)
    assert (await ada.delete(f"/v1/jobs/{job['id']}")).status_code in (200, 202, 204)
    await BlobCleanupLoop(api.db, open_blob_store(api.settings.blobs)).remove_unneeded_blobs()
    assert s3.list_object_names(prefix) == []


async def test_rejected_upload_leaves_no_object_in_bucket(
    make_api: Callable[..., Any], toy: Mill, s3: S3Server, prefix: str
) -> None:
    api: Api = await make_api(max_file_size_mb=9)
    ada = await api.user("ada")
    for content, status in ((b"x" * (11 << 20), 413), (b"a\n1\n", 422)):
        answer = await ada.post("/v1/jobs?kind=nobody", content=content, headers=CSV)
        assert answer.status_code in (status, 422), answer.text
    form = {"file": ("a.csv", b"a\n1\n", "text/csv")}
    assert (await ada.post("/v1/jobs", files=form, data={"kind": "echo", "bad": "x"})).status_code == 422
    assert s3.list_object_names(prefix) == []


async def test_import_dry_run_and_promotion_read_file_from_bucket(
    make_api: Callable[..., Any], toy: Mill, tmp_path: Path, s3: S3Server, prefix: str
) -> None:
    shop: Shop = await open_shop(make_api, toy, tmp_path)
    trial = await shop.imported(validate_only="true")
    promoted = await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")
    assert promoted.status_code in (200, 202), promoted.text
    await shop.work()
    assert [person[0] for person in await shop.people()] == ["ada@x.org", "bob@x.org"]
    assert len(s3.list_object_names(prefix)) == 2, "the file of the dry run, and a copy for the import"


async def test_bucket_download_supports_ranges_and_conditional_requests(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    path = await exported(api, ada, toy, [{"n": n, "text": "x" * 5_000} for n in range(100)])
    whole = await ada.get(path)
    content, etag = whole.content, whole.headers["etag"]
    assert (whole.status_code, whole.headers["accept-ranges"]) == (200, "bytes")
    assert int(whole.headers["content-length"]) == len(content) > 500_000

    for said, start, end in (
        ("0-9", 0, 10),
        ("300000-300099", 300_000, 300_100),
        ("-7", len(content) - 7, len(content)),
    ):
        part = await ada.get(path, headers={"Range": f"bytes={said}"})
        assert (part.status_code, part.content) == (206, content[start:end])
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/{len(content)}"
    beyond = await ada.get(path, headers={"Range": f"bytes={len(content)}-"})
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, f"bytes */{len(content)}")
    for said in ("bytes=0-1,5-6", "lines=1-2", "bytes=9-1", "bytes=-", "bytes=a-b"):
        assert (await ada.get(path, headers={"Range": said})).status_code == 200, said
    for if_range, status in ((etag, 206), ('"another"', 200)):
        part = await ada.get(path, headers={"Range": "bytes=1-2", "If-Range": if_range})
        assert part.status_code == status
    for known, status in ((etag, 304), (f'"x", W/{etag}', 304), ("*", 304), ('"x"', 200)):
        again = await ada.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.headers["etag"]) == (status, etag)
        assert bool(again.content) == (status == 200)


async def test_download_redirects_to_presigned_url_when_configured(
    make_api: Callable[..., Any], toy: Mill, s3: S3Server, prefix: str
) -> None:
    api: Api = await make_api(presigned_s=60)
    ada = await api.user("ada")
    path = await exported(api, ada, toy, [1, 2, 3])
    answer = await ada.get(path)
    assert (answer.status_code, answer.headers["cache-control"]) == (307, "no-store")
    link = answer.headers["location"]
    assert link.startswith(f"{s3.endpoint}/{s3.bucket}/{prefix}/")
    async with httpx2.AsyncClient(trust_env=False) as anybody:
        assert (await anybody.get(link)).content.count(b"\n") == 3
    etag = (await (await (await make_api()).user("eve")).get(path)).headers.get("etag")
    assert etag is None, "an unauthenticated client gets neither"
    open_blob_store(api.settings.blobs).remove(s3.list_object_names(prefix)[0])
    assert (await ada.get(path)).status_code == 409


async def test_upload_returns_503_and_leaves_nothing_when_bucket_fails_midway(
    make_api: Callable[..., Any], mortal: S3Server
) -> None:
    api: Api = await make_api(blobs=mortal.blobs_url())
    ada = await api.user("ada")

    async def body() -> AsyncIterator[bytes]:
        for n in range(30):
            if n == 15:
                mortal.kill()
            yield b"x" * (1 << 20)

    answer = await ada.post("/v1/jobs?kind=echo", content=body(), headers=CSV)
    assert answer.status_code == 503
    assert answer.json()["detail"].startswith(f"Request to {mortal.blobs_url()} failed")
    assert mortal.secret not in answer.text
    assert answer.headers["retry-after"] == "1"
    mortal.start()
    assert mortal.list_object_names() == []
    assert await rows(api.db, "SELECT 1 FROM tidemill.job") == []
    assert (await ada.post("/v1/jobs?kind=echo", content=b"a\n1\n", headers=CSV)).status_code == 202


async def test_worker_waits_for_unreachable_bucket_and_completes_job(
    make_api: Callable[..., Any], mortal: S3Server, workers: Workers, db: Database
) -> None:
    api: Api = await make_api(blobs=mortal.blobs_url())
    ada = await api.user("ada")
    answer = await ada.post("/v1/jobs?kind=echo", content=b"n\n" + b"1\n" * 500, headers=CSV)
    job_id = UUID(answer.json()["id"])
    mortal.kill()
    app = workers.app("""
        @mill.handler("echo")
        async def echo(item):
            return item.input
    """)
    workers.start(app, blobs=mortal.blobs_url(), log_level="error")

    async def is_taken() -> bool:
        return bool(await rows(db, "SELECT 1 FROM tidemill.ingest WHERE job_id = %s AND lease_id IS NOT NULL", job_id))

    await eventually(is_taken)
    mortal.start()
    assert (await closed(db, job_id)).status is JobStatus.COMPLETED
    path = (await ada.post(f"/v1/jobs/{job_id}/export?format=csv")).headers["location"]
    await closed(db, UUID(path.rsplit("/", 1)[1]))
    assert (await ada.get(f"{path}/download")).content.count(b"\r\n") == 501
