"""Submission of jobs that call external services over HTTP."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.api import Api, opened
from tidemill import Mill
from tidemill.config import Settings
from tidemill.core.principal import Role

DECLARED = """
[services.names]
url = "https://recon.example/api"
use = ["user"]
[services.secret]
url = "https://intern.example/api"
"""
MATCH: dict[str, Any] = {"service": "names", "query": "name", "threshold": 80}


@pytest.fixture
async def here(settings: Settings, toy: Mill) -> AsyncIterator[Api]:
    config = settings.home / "tidemill.toml"
    config.write_text(DECLARED)
    async with opened(settings.model_copy(update={"config": config}), toy) as api:
        yield api


@pytest.mark.parametrize("kind", ["match", "entity.match", "tidemill.match"])
async def test_match_job_is_accepted_under_each_kind_alias(here: Api, kind: str) -> None:
    user = await here.user("ada")
    answer = await user.post("/v1/jobs", json={"kind": kind, "inputs": [{"name": "Ada"}], "params": MATCH})
    assert answer.status_code == 202, answer.text
    job = (await user.get(answer.headers["location"])).json()
    assert job["kind"] == "tidemill.match"
    assert job["params"]["strategies"] == ["exact", "normalized", "normalized+without_type"]
    assert job["columns"] == ["id", "name", "score", "match", "type", "query", "strategy", "candidates"]


async def test_match_job_with_invalid_params_reports_all_errors_and_stores_nothing(here: Api) -> None:
    user = await here.user("ada")
    wrong = {"kind": "match", "inputs": [{"name": "Ada"}], "params": {"query": "name", "limit": 99, "treshold": 1}}
    answer = await user.post("/v1/jobs", json=wrong)
    assert answer.status_code == 422
    for word in ("params.service", "params.limit", 'did you mean "threshold"?'):
        assert word in answer.json()["detail"]
    pointers = {fault["pointer"] for fault in answer.json()["errors"]}
    assert pointers == {"#/params/service", "#/params/limit", "#/params/treshold"}
    assert (await user.get("/v1/jobs")).json()["jobs"] == []


async def test_service_job_referring_to_unknown_column_is_rejected(here: Api) -> None:
    user = await here.user("ada")
    params = MATCH | {"query": "nmae", "properties": {"P17": "land"}}
    answer = await user.post("/v1/jobs", json={"kind": "match", "inputs": [{"name": "Ada"}], "params": params})
    assert answer.status_code == 422
    assert 'did you mean "name"?' in answer.json()["detail"]
    assert '"land"' in answer.json()["detail"]
    enrich = {"service": "names", "path": "/{sku}", "fields": {"price": "$.price"}}
    answer = await user.post("/v1/jobs", json={"kind": "http.enrich", "inputs": [{"name": "Ada"}], "params": enrich})
    assert (answer.status_code, r"params.path: unknown column \"sku\"" in answer.text) == (422, True)
    query = {"kind": "match", "params": json.dumps(params)}
    answer = await user.post(
        "/v1/jobs", params=query, content="name;land\nAda;GB\n", headers={"Content-Type": "text/csv"}
    )
    assert (answer.status_code, r"\"nmae\"" in answer.text) == (422, True)
    query = {"kind": "match", "params": json.dumps(MATCH)}
    answer = await user.post(
        "/v1/jobs", params=query, content="name;land\nAda;GB\n", headers={"Content-Type": "text/csv"}
    )
    assert answer.status_code == 202, answer.text


async def test_service_use_is_limited_to_granted_roles(here: Api) -> None:
    user, admin = await here.user("ada"), await here.user("root", Role.ADMIN)

    async def submitted(who: Any, service: str) -> int:
        job = {"kind": "match", "inputs": [{"name": "Ada"}], "params": MATCH | {"service": service}}
        return int((await who.post("/v1/jobs", json=job)).status_code)

    shown = [[one["name"] for one in (await who.get("/v1/services")).json()["services"]] for who in (user, admin)]
    assert shown == [["names"], ["names", "secret"]]
    assert [await submitted(user, name) for name in ("names", "secret", "https://any.example/api")] == [202, 422, 422]
    assert [await submitted(admin, name) for name in ("secret", "https://any.example/api")] == [202, 202]
    assert await submitted(admin, "https://user:pw@any.example/api") == 422


async def test_match_job_idempotency_key_returns_existing_job(here: Api) -> None:
    user = await here.user("ada")
    job = {"kind": "match", "inputs": [{"name": "Ada"}], "params": MATCH}
    first, second = [await user.post("/v1/jobs", json=job, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["id"] == second.json()["id"]
