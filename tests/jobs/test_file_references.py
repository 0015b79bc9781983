"""POST /v1/jobs with a URL, a stored file, or an object of a configured bucket instead of a file."""

import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import obstore
import pytest

from support import rows
from support.api import Api
from support.import_requests import stocked
from support.loopback_server import Server, ranged
from support.s3 import S3Server
from tidemill import Mill
from tidemill.config import Settings, SourceFolder
from tidemill.core.blob_location import BucketLocation
from tidemill.core.principal import Role
from tidemill.files.blobs.bucket_store import ObjectStoreLimits, open_object_store
from tidemill.testing import drain

SEMICOLONS = b"sku;price\nA-1;1,50\nA-2;2,00\n"
INPUTS = [{"sku": "A-1", "price": "1,50"}, {"sku": "A-2", "price": "2,00"}]


async def submit(who: httpx2.AsyncClient, source: dict[str, Any], **headers: str) -> httpx2.Response:
    return await who.post("/v1/jobs", json={"kind": "echo", "source": source}, headers=headers)


async def inputs_after_drain(api: Api, mill: Mill, answer: httpx2.Response) -> list[Any]:
    assert answer.status_code in (200, 202), answer.text
    await drain(mill, db=api.db)
    found = await rows(api.db, "SELECT input FROM tidemill.item WHERE job_id = %s ORDER BY seq", answer.json()["id"])
    return [row[0] for row in found]


async def job_count(api: Api) -> int:
    [(n,)] = await rows(api.db, "SELECT count(*) FROM tidemill.job")
    return int(n)


@pytest.fixture
def lake(s3: S3Server) -> dict[str, SourceFolder]:
    """Sources with a part of a bucket for users, and the bucket for admins. Only the part has a file for users."""
    top = f"lake-{uuid4().hex[:8]}"
    put_object(s3, f"{top}/daily/2026/prices 1.csv", SEMICOLONS)
    put_object(s3, f"{top}/daily/people.csv", b"email,name,age\nada@x.org,Ada,36\n")
    put_object(s3, f"{top}/daily/large.csv", b"a\n" + b"1\n" * (1 << 19))
    put_object(s3, f"{top}/secret.csv", b"secret\n1\n")
    return {
        "lake": SourceFolder(path=BucketLocation("s3", s3.bucket, f"{top}/daily"), read=(Role.USER,)),
        "all": SourceFolder(path=BucketLocation("s3", s3.bucket, top)),
    }


def put_object(s3: S3Server, key: str, data: bytes) -> None:
    obstore.put(open_object_store(BucketLocation("s3", s3.bucket), ObjectStoreLimits()), key, data)


async def test_job_from_object_of_configured_bucket_has_its_rows(
    make_api: Callable[..., Any], toy: Mill, lake: dict[str, SourceFolder]
) -> None:
    api = await make_api(sources=lake)
    ada = await api.user("ada")
    answer = await submit(ada, {"name": "lake", "path": "2026/prices 1.csv"})
    assert answer.json()["file_name"] == "prices 1.csv"
    assert await inputs_after_drain(api, toy, answer) == INPUTS


async def test_import_from_object_of_configured_bucket_writes_its_rows(
    make_api: Callable[..., Any], toy: Mill, lake: dict[str, SourceFolder], tmp_path: Path
) -> None:
    api = await stocked(make_api, tmp_path, sources=lake)
    ada = await api.user("ada")
    asked = {"resource": "people", "source": {"name": "lake", "path": "people.csv"}}
    preview = await ada.post("/v1/imports/preview", json=asked)
    assert preview.status_code == 200, preview.text
    assert (preview.status_code, len(preview.json()["rows"])) == (200, 1), preview.text
    assert (await ada.post("/v1/imports", json=asked)).status_code == 202
    await drain(toy, db=api.db)
    assert await rows(api.db, "SELECT email, name, age FROM shop.people") == [("ada@x.org", "Ada", 36)]


@pytest.mark.parametrize(
    "path", ["../secret.csv", "2026/../../secret.csv", "none.csv", "2026", "/2026/prices 1.csv", "2026//a.csv", "a\tb"]
)
async def test_object_outside_prefix_or_missing_is_rejected(
    make_api: Callable[..., Any], lake: dict[str, SourceFolder], path: str
) -> None:
    api = await make_api(sources=lake)
    answer = await submit(await api.user("ada"), {"name": "lake", "path": path, "format": "csv"})
    assert answer.status_code == 422, answer.text
    assert "has no file" in answer.text
    assert await job_count(api) == 0


async def test_bucket_requires_a_grant_and_its_objects_the_size_limit(
    make_api: Callable[..., Any], lake: dict[str, SourceFolder]
) -> None:
    api = await make_api(sources=lake, max_file_size_mb=1)
    ada, root = await api.user("ada"), await api.user("root", Role.ADMIN)
    assert "Unknown source" in (await submit(ada, {"name": "all", "path": "secret.csv"})).text
    assert (await submit(root, {"name": "all", "path": "secret.csv"})).status_code == 202
    assert (await ada.get("/v1/limits")).json()["sources"] == ["lake"]
    large = await submit(ada, {"name": "lake", "path": "large.csv"})
    assert large.status_code == 413, large.text
    assert await job_count(api) == 1


async def test_unreachable_bucket_is_reported_as_unavailable(
    make_api: Callable[..., Any], lake: dict[str, SourceFolder], monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"http://127.0.0.1:{probe.getsockname()[1]}"
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    api = await make_api(sources=lake)
    answer = await submit(await api.user("ada"), {"name": "lake", "path": "2026/prices 1.csv"})
    assert answer.status_code == 503, answer.text
    assert await job_count(api) == 0


async def test_job_from_stored_file_copies_it_and_hides_files_of_others(
    api: Api, toy: Mill, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    first = await ada.post("/v1/jobs", params={"kind": "echo", "filename": "a.csv"}, content=b"sku\nA-1\n")
    [(file_id,)] = await rows(api.db, "SELECT file_id FROM tidemill.job")
    refused = await submit(bob, {"file_id": file_id})
    assert refused.status_code == 404, refused.text
    answer = await submit(ada, {"file_id": file_id})
    assert (await ada.delete(f"/v1/jobs/{first.json()['id']}")).status_code == 204
    assert await inputs_after_drain(api, toy, answer) == [{"sku": "A-1"}]
    assert (await submit(ada, {"file_id": "0" * 32})).status_code == 404


@pytest.fixture
async def download(make_api: Callable[..., Any], settings: Settings) -> AsyncIterator[tuple[Api, Mill, Server]]:
    """An API that may download from a server, its mill, and this server."""
    with Server(ranged(SEMICOLONS)) as server:
        allowed = {"remote_allow": [f"127.0.0.1:{server.port}"]}
        mill = Mill(settings.model_copy(update=allowed))
        mill.handler("echo")(lambda item: item.input)
        yield await make_api(**allowed), mill, server


async def test_job_from_url_is_downloaded_by_worker_and_keeps_query_secret(
    download: tuple[Api, Mill, Server],
) -> None:
    api, mill, server = download
    ada = await api.user("ada")
    answer = await submit(ada, {"url": server.url("/prices.csv?token=s3cret")})
    assert (answer.status_code, answer.json()["file_name"]) == (202, "prices.csv")
    assert not server.requests, "the server responds before the download"
    assert await inputs_after_drain(api, mill, answer) == INPUTS
    detail = await ada.get(f"/v1/jobs/{answer.json()['id']}")
    assert (detail.json()["status"], detail.json()["fetch"]["bytes"]) == ("completed", len(SEMICOLONS))
    assert "s3cret" not in detail.text


async def test_repeated_idempotency_key_returns_job_of_the_same_reference(download: tuple[Api, Mill, Server]) -> None:
    api, _, server = download
    ada = await api.user("ada")
    key = {"Idempotency-Key": "k1"}
    first = await submit(ada, {"url": server.url("/a.csv")}, **key)
    again = await submit(ada, {"url": server.url("/a.csv")}, **key)
    other = await submit(ada, {"url": server.url("/b.csv")}, **key)
    assert (first.status_code, again.status_code, other.status_code) == (202, 200, 422), other.text
    assert again.json()["id"] == first.json()["id"]
    assert await job_count(api) == 1


@pytest.mark.parametrize(
    "source",
    [
        {"url": "http://127.0.0.1/x.csv"},
        {"url": "http://[::1]/x.csv"},
        {"url": "http://169.254.169.254/latest"},
        {"url": "ftp://x.org/a.csv"},
        {"url": "http://u:p@x.org/a.csv"},
        {"url": "https://x.org/a.csv", "file_id": "0" * 32},
        {"url": "https://x.org/a.csv", "name": "inbox", "path": "a.csv"},
        {"name": "inbox"},
        {"path": "a.csv"},
        {"file_id": "../../etc/passwd"},
        {},
    ],
)
async def test_invalid_reference_is_rejected_without_a_job(api: Api, ada: httpx2.AsyncClient, source: Any) -> None:
    answer = await submit(ada, source)
    assert answer.status_code == 422, answer.text
    assert await job_count(api) == 0


async def test_job_from_url_that_cannot_be_downloaded_fails_with_reason(
    api: Api, toy: Mill, ada: httpx2.AsyncClient
) -> None:
    answer = await submit(ada, {"url": "http://nowhere.invalid/a.csv"})
    assert answer.status_code == 202, answer.text
    await drain(toy, db=api.db)
    job = (await ada.get(f"/v1/jobs/{answer.json()['id']}")).json()
    assert job["status"] == "failed"
    assert "nowhere.invalid" in job["failure_reason"]
