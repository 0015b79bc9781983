"""Quotas per user: what exceeds one is rejected with its name, use and limit, and nothing stored is lost."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import UUID

import httpx2
import pytest

from support import assert_sound, closed, eventually, job_of, rows
from support.api import Api
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.testing import drain


def submit(client: httpx2.AsyncClient, count: int = 1, *, key: int | None = None) -> Any:
    headers = {} if key is None else {"Idempotency-Key": str(key)}
    return client.post("/v1/jobs", json={"kind": "echo", "inputs": list(range(count))}, headers=headers)


def upload(client: httpx2.AsyncClient, content: bytes) -> Any:
    headers = {"content-type": "text/csv"}
    return client.post("/v1/jobs", params={"kind": "echo"}, content=content, headers=headers)


def quota(answer: httpx2.Response) -> tuple[int, str, int, int]:
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    exceeded = problem["quota"]
    assert f'Quota "{exceeded["name"]}" exceeded' in problem["detail"]
    return answer.status_code, exceeded["name"], exceeded["used"], exceeded["limit"]


async def test_submit_beyond_open_jobs_quota_is_429_until_a_job_ends(make_api: Callable[..., Any], toy: Mill) -> None:
    api: Api = await make_api(quota_open_jobs=2)
    ada, bob = await api.user("ada"), await api.user("bob")
    answers = await asyncio.gather(*(submit(ada, key=n) for n in range(6)))
    assert sorted(answer.status_code for answer in answers) == [202, 202, 429, 429, 429, 429]
    rejected = next(answer for answer in answers if answer.status_code == 429)
    assert quota(rejected) == (429, "open_jobs", 3, 2)
    assert int(rejected.headers["retry-after"]) >= 1
    accepted = next(n for n, answer in enumerate(answers) if answer.status_code == 202)
    assert (await submit(ada, key=accepted)).status_code == 200, "a repeated request"
    assert (await submit(bob)).status_code == 202
    await drain(toy)
    assert (await submit(ada)).status_code == 202


async def test_submit_beyond_open_rows_quota_is_rejected_and_stores_nothing(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(quota_open_rows=10)
    ada = await api.user("ada")
    assert (await submit(ada, 6)).status_code == 202
    assert quota(await submit(ada, 6)) == (429, "open_rows", 12, 10)
    assert quota(await submit(ada, 11)) == (413, "open_rows", 17, 10)
    assert await rows(api.db, "SELECT count(*) FROM tidemill.item") == [(6,)]
    assert (await submit(await api.user("root", Role.ADMIN), 11)).status_code == 202, "admins have no quota"


async def test_upload_beyond_storage_quota_is_rejected_and_fits_after_delete(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(quota_stored_mb=1)
    ada = await api.user("ada")
    big = b"sku\n" + b"x" * 900_000
    first = await upload(ada, big)
    assert first.status_code == 202
    used = (await ada.get("/v1/limits")).json()["quota"]["stored_bytes"]
    assert used == {"used": len(big), "limit": 1 << 20}
    assert quota(await upload(ada, big))[:2] == (403, "stored_bytes")
    assert quota(await upload(ada, b"sku\n" + b"x" * (1 << 20)))[:2] == (413, "stored_bytes")
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(1,)]
    job = first.json()["id"]
    await ada.post(f"/v1/jobs/{job}/cancel")
    await eventually(lambda: _is_deleted(ada, job))
    assert (await upload(ada, big)).status_code == 202


async def _is_deleted(client: httpx2.AsyncClient, job: str) -> bool:
    return (await client.delete(f"/v1/jobs/{job}")).status_code in (204, 404)


async def test_file_beyond_open_rows_quota_fails_job_and_keeps_stored_rows(
    make_api: Callable[..., Any], toy: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    api: Api = await make_api()
    ada, root = await api.user("ada"), await api.user("root", Role.ADMIN)
    small = {"ingest_max_rows": 64}
    mill = Mill(toy.settings.model_copy(update=small))
    mill.handler("echo")(_echo)
    assert (await root.patch("/v1/users/ada/quota", json={"open_rows": 150})).status_code == 200
    answer = await upload(ada, b"sku\n" + b"".join(b"%d\n" % n for n in range(1_000)))
    assert answer.status_code == 202
    await drain(mill)
    job = await closed(api.db, answer.json()["id"])
    assert job.status == "failed"
    shown = (await ada.get(f"/v1/jobs/{job.id}")).json()
    assert shown["failure_reason"].startswith('Quota "open_rows" exceeded: ')
    assert shown["counts"]["total"] >= 64
    await assert_sound(api.db, job.id)


async def _echo(item: Any) -> Any:
    return item.input


async def test_admin_sets_quota_of_user_and_restores_default(make_api: Callable[..., Any]) -> None:
    api: Api = await make_api(quota_open_jobs=1)
    ada, root = await api.user("ada"), await api.user("root", Role.ADMIN)
    path = "/v1/users/ada/quota"
    assert (await submit(ada)).status_code == 202
    assert quota(await submit(ada)) == (429, "open_jobs", 2, 1)
    changed = await root.patch(path, json={"open_jobs": "unlimited", "open_rows": 5})
    assert changed.json()["open_jobs"] == {"used": 1, "limit": None}
    assert changed.json()["open_rows"] == {"used": 1, "limit": 5}
    assert (await submit(ada)).status_code == 202
    assert (await ada.get("/v1/limits")).json()["quota"] == (await root.get(path)).json()
    assert (await root.patch(path, json={"open_jobs": "default"})).json()["open_jobs"] == {"used": 2, "limit": 1}
    assert (await ada.patch(path, json={"open_jobs": 9})).status_code == 403
    assert (await root.patch(path, json={"open_jobs": 0})).status_code == 422


async def test_reprocess_and_redrive_beyond_quota_are_429_and_change_nothing(
    make_api: Callable[..., Any], toy: Mill
) -> None:
    api: Api = await make_api(quota_open_rows=10, quota_open_jobs=2)
    ada = await api.user("ada")
    failing = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [{"fail": n} for n in range(8)]})
    job = failing.json()["id"]
    await drain(toy)
    assert (await submit(ada, 4)).status_code == 202
    again, every = {"scope": "job", "statuses": ["failed"]}, {"all_matching": True}
    for path, body in ((f"/v1/jobs/{job}/reprocess", again), ("/v1/dead-letters/redrive", every)):
        assert quota(await ada.post(path, json=body)) == (429, "open_rows", 12, 10)
    assert (await job_of(api.db, UUID(job))).counts.failed == 8
    assert (await submit(ada)).status_code == 202
    assert quota(await ada.post(f"/v1/jobs/{job}/reprocess", json=again))[:2] == (429, "open_jobs")
    await drain(toy)
    done = await ada.post(f"/v1/jobs/{job}/reprocess", json=again)
    assert (done.status_code, done.json()["items"], done.json()["state"]) == (200, 8, "done")
    assert "quota" not in done.json()["predicate"]
    await assert_sound(api.db)
