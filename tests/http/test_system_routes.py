"""Health, limits and metrics, and headers of every response."""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2
import pytest

from jobs.test_job_control_routes import submitted
from support import add_job, rows
from support.api import Api
from tidemill.dispatch import outbox
from tidemill.rest import auth
from tidemill.rest.auth import RequestRateLimiter
from tidemill.store import progress_samples, workers
from tidemill.testing.throwaway_postgres import ThrowawayServer


async def test_health_is_readable_without_authentication(api: Api) -> None:
    answer = await api.client().get("/health")
    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "workers": 0,
        "open_jobs": 0,
        "queue_age_s": 0.0,
        "reasons": [],
        "broker": None,
        "outbox": 0,
        "outbox_age_s": 0.0,
        "quarantined": 0,
    }


async def test_health_is_degraded_when_no_worker_runs_or_queue_is_old(api: Api, ada: httpx2.AsyncClient) -> None:
    await submitted(ada, [1])
    assert (await ada.get("/health")).json()["status"] == "degraded"
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})
    health = (await ada.get("/health")).json()
    assert (health["status"], health["workers"], health["open_jobs"]) == ("ok", 1, 1)
    await rows(
        api.db,
        "UPDATE tidemill.batch SET since = since - interval '10 min', not_before = not_before - interval '10 min'",
    )
    health = (await ada.get("/health")).json()
    assert health["status"] == "degraded"
    assert health["queue_age_s"] >= 600


async def test_health_stays_ok_when_long_paused_job_resumes(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    await ada.post(f"/v1/jobs/{job}/pause")
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})
    aged = "SET since = since - interval '10 min', not_before = not_before - interval '10 min'"
    await rows(api.db, f"UPDATE tidemill.batch {aged}")
    assert (await ada.post(f"/v1/jobs/{job}/resume")).status_code == 200
    health = (await ada.get("/health")).json()
    assert (health["status"], health["reasons"]) == ("ok", [])
    assert health["queue_age_s"] < 60
    assert (await api.db.run(progress_samples.read_queue_depth)).oldest_s < 60
    await rows(api.db, "UPDATE tidemill.activity SET at = at - interval '10 min'")
    assert (await ada.get("/health")).json()["status"] == "degraded"


async def test_health_gives_reason_when_unfit(api: Api, ada: httpx2.AsyncClient) -> None:
    await rows(api.db, "DELETE FROM tidemill.migration")
    answer = await ada.get("/health")
    assert (answer.status_code, answer.json()["status"]) == (503, "unfit")
    assert answer.json()["reasons"] == [answer.json()["migrations"]]


async def test_health_queue_age_includes_unread_source_files(api: Api, ada: httpx2.AsyncClient) -> None:
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})
    headers = {"content-type": "text/csv"}
    assert (await ada.post("/v1/jobs?kind=echo", content=b"a\n1\n", headers=headers)).status_code == 202
    assert (await ada.get("/health")).json()["status"] == "ok"
    await rows(api.db, "UPDATE tidemill.job SET updated_at = updated_at - interval '10 min'")
    health = (await ada.get("/health")).json()
    assert (health["status"], len(health["reasons"])) == ("degraded", 1)
    assert health["queue_age_s"] >= 600
    assert (await api.db.run(progress_samples.read_queue_depth)).oldest_s >= 600
    await rows(api.db, "UPDATE tidemill.ingest SET lease_id = gen_random_uuid(), lease_until = now() + interval '1 h'")
    assert (await ada.get("/health")).json()["queue_age_s"] == 0, "the file has an ingest lease"
    assert (await api.db.run(progress_samples.read_queue_depth)).oldest_s == 0
    await rows(api.db, "UPDATE tidemill.ingest SET lease_until = now() - interval '2 min'")
    assert 120 <= (await ada.get("/health")).json()["queue_age_s"] < 600, "the ingest lease has expired"
    await rows(api.db, "UPDATE tidemill.job SET intent = 'pause'")
    assert (await ada.get("/health")).json()["queue_age_s"] == 0


async def test_health_names_kinds_without_worker_even_before_their_files_are_read(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["other"]})
    headers = {"content-type": "text/csv"}
    job = (await ada.post("/v1/jobs?kind=echo", content=b"a\n1\n", headers=headers)).json()["id"]
    health = (await ada.get("/health")).json()
    assert (health["status"], health["reasons"]) == ("degraded", ['No worker serves "echo": 1 job waits'])
    assert (await ada.get("/v1/flow")).json()["unserved"] == [{"kind": "echo", "items": 0, "jobs": 1}]
    await submitted(ada, [1, 2])
    assert (await ada.get("/health")).json()["reasons"] == ['No worker serves "echo": 2 jobs wait']
    assert (await ada.get("/v1/flow")).json()["unserved"] == [{"kind": "echo", "items": 2, "jobs": 2}]
    for n in range(6):
        await add_job(api.db, 1, kind=f"kind{n}")
    assert len((await ada.get("/health")).json()["reasons"]) == 5
    await rows(api.db, "DELETE FROM tidemill.job WHERE kind LIKE 'kind%%'")
    assert (await ada.post(f"/v1/jobs/{job}/pause")).status_code == 200
    assert (await ada.get("/health")).json()["reasons"] == ['No worker serves "echo": 1 job waits']
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})
    assert (await ada.get("/health")).json()["reasons"] == []


async def test_health_does_not_count_on_demand_pool_as_worker(api: Api, ada: httpx2.AsyncClient) -> None:
    await submitted(ada, [1])
    await api.db.run(workers.register_worker, "pool", "host", 1, {"kinds": ["echo"], "on_demand": True})
    health = (await ada.get("/health")).json()
    assert (health["workers"], health["reasons"]) == (0, ["Jobs are open, but no worker is running"])
    [item] = (await ada.get("/v1/pending")).json()["items"]
    assert item["why"] == "No running worker handles this kind; a kickoff request can run the item"
    assert await api.db.read(workers.list_live_kinds) == set()
    await api.db.run(workers.register_worker, "w", "host", 2, {"kinds": ["echo"], "on_demand": False})
    assert (await ada.get("/health")).json()["reasons"] == []
    [item] = (await ada.get("/v1/pending")).json()["items"]
    assert item["why"] == "Queued"


async def test_health_is_degraded_by_old_outbox_only_when_worker_uses_broker(api: Api, ada: httpx2.AsyncClient) -> None:
    await api.db.run(outbox.register_broker_and_get_namespace, "redis")
    await submitted(ada, [1])
    await rows(api.db, "UPDATE tidemill.outbox SET created_at = created_at - interval '2 min'")
    broker = {"name": "redis", "trouble": None}
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"], "broker": broker})
    health = (await ada.get("/health")).json()
    assert (health["status"], health["outbox"]) == ("degraded", 1)
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})  # a worker without a broker
    health = (await ada.get("/health")).json()
    assert (health["status"], health["outbox"], health["reasons"]) == ("ok", 1, [])


async def test_health_is_503_when_migration_is_missing(api: Api) -> None:
    await rows(api.db, "DELETE FROM tidemill.migration WHERE name LIKE '0002%%'")
    answer = await api.client().get("/health")
    assert answer.status_code == 503
    assert "0002" in answer.json()["migrations"]


async def test_health_and_routes_are_503_when_database_is_unreachable(
    make_api: Callable[..., Any], tidemill_server: ThrowawayServer, tidemill_database: str
) -> None:
    api = await make_api()
    ada = await api.user("ada")
    api.db._patience, api.db._pool.timeout = 0.2, 0.5
    tidemill_server.drop_database(tidemill_database)
    answer = await ada.get("/health")
    assert (answer.status_code, answer.json()["database"]) == (503, "not reachable")
    answer = await ada.get("/v1/me")
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert "tidemill" not in answer.json()["detail"], "unauthenticated callers get no details"


async def test_limits_route_returns_configured_limits(ada: httpx2.AsyncClient, api: Api) -> None:
    limits = (await ada.get("/v1/limits")).json()
    assert limits["max_file_size_mb"] == api.settings.max_file_size_mb
    assert limits["sources"] == []


async def test_rate_limit_rejects_excess_with_retry_after_per_user(
    make_api: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = partial(RequestRateLimiter, clock=lambda: 0.0)  # independent of the duration of requests
    monkeypatch.setattr(auth, "RequestRateLimiter", frozen)
    api = await make_api(rate_limit_per_s=1, rate_limit_burst=3)
    ada, bob = await api.user("ada"), await api.user("bob")
    answers = [await ada.get("/v1/me") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"default";q=3;w=3'
    assert answers[0].headers["ratelimit"].startswith('"default";r=2;')
    assert int(answers[3].headers["retry-after"]) >= 1
    assert (await bob.get("/v1/me")).status_code == 200, "each user has a separate limit"


SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cache-control": "no-store",
}


@pytest.mark.parametrize("path", ["/health", "/v1/me", "/v1/nowhere", "/v1/jobs/x", "/v1/openapi.json"])
async def test_response_has_security_headers_on_every_path(api: Api, path: str) -> None:
    headers = (await api.client().get(path)).headers
    assert {name: headers.get(name) for name in SAFE} == SAFE
    assert "default-src 'none'" in headers["content-security-policy"]
    assert headers["x-request-id"]
    assert "server" not in headers


async def test_cors_preflight_allows_only_configured_origins(make_api: Callable[..., Any]) -> None:
    asks = {"Origin": "https://shop.example", "Access-Control-Request-Method": "GET"}
    closed = (await make_api()).client()
    assert "access-control-allow-origin" not in (await closed.options("/v1/me", headers=asks)).headers
    opened = (await make_api(cors_origins=["https://shop.example"])).client()
    allowed = (await opened.options("/v1/me", headers=asks)).headers
    assert allowed["access-control-allow-origin"] == "https://shop.example"
    other = (await opened.options("/v1/me", headers=asks | {"Origin": "https://evil.example"})).headers
    assert "access-control-allow-origin" not in other


async def test_api_root_links_to_openapi_document(api: Api) -> None:
    front = (await api.client().get("/v1")).json()
    assert (await api.client().get(front["openapi"])).json()["info"]["title"] == "Tidemill"
