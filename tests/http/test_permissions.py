"""Every operation of the OpenAPI document enforces its declared permission.

Its callers are six principals: anonymous, an expired key, a revoked key, a user, another user, and an admin.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter

from support import rows
from support.api import Api
from support.import_requests import CSV_TYPE, GOOD, MIXED, stocked
from support.openapi_document import DOCUMENT
from tidemill import Mill
from tidemill.core.principal import LOCAL_USER_ID, Role
from tidemill.limits import limiter_records
from tidemill.limits.limiter import Limiter
from tidemill.rest import auth
from tidemill.store import users
from tidemill.testing import drain

OPERATIONS = [
    (method.upper(), path, operation["x-permission"])
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]
BODIES: dict[tuple[str, str], dict[str, Any]] = {
    ("POST", "/v1/jobs"): {"json": {"kind": "echo", "inputs": [1]}},
    ("POST", "/v1/jobs/{job}/reprocess"): {"json": {}},
    ("POST", "/v1/imports/{import_id}/undo"): {"json": {}},
    ("POST", "/v1/imports/{import_id}/undo/preview"): {"json": {}},
    ("POST", "/v1/jobs/{job}/selection/cancel"): {"json": {}},
    ("POST", "/v1/jobs/{job}/selection/count"): {"json": {}},
    ("POST", "/v1/jobs/{job}/export"): {"params": {"format": "csv"}},
    ("PATCH", "/v1/jobs/{job}/items/{seq}"): {"json": {"input": {"better": 1}}},
    ("POST", "/v1/dead-letters/redrive"): {"json": {"all_matching": True}},
    ("POST", "/v1/dead-letters/forecast"): {"json": {"all_matching": True}},
    ("POST", "/v1/dead-letters/dismiss"): {"json": {"all_matching": True}},
    ("POST", "/v1/dead-letters/restore"): {"json": {"all_matching": True}},
    ("POST", "/v1/imports"): {"params": {"resource": "people"}, "content": GOOD, "headers": CSV_TYPE},
    ("POST", "/v1/imports/preview"): {"params": {"resource": "people"}, "content": GOOD, "headers": CSV_TYPE},
    ("POST", "/v1/imports/{import_id}/repairs"): {"json": {"cause": "age.type", "rule": {"type": "drop"}}},
    ("POST", "/v1/imports/{import_id}/repairs/preview"): {"json": {"cause": "age.type", "rule": {"type": "drop"}}},
    ("POST", "/v1/imports/{import_id}/fixes"): {"content": b"_row,age\n2,1\n", "headers": CSV_TYPE},
    ("POST", "/v1/imports/{import_id}/reprocess"): {"json": {}},
    ("PATCH", "/v1/import-mappings/{mapping_id}"): {"json": {"shared": False}},
    ("POST", "/v1/exports"): {"json": {"resource": "people"}},
    ("POST", "/v1/distributions"): {
        "json": {"dataset": "letters", "inputs": [{"first_name": "Ada", "sent_on": 20240202}]}
    },
    ("POST", "/v1/ingestion/scan"): {"json": {}},
    ("PATCH", "/v1/limiters/{limiter}"): {"json": {"rate": "2/s"}},
    ("POST", "/v1/pending/run-now"): {"json": {"item_ids": []}},
    ("POST", "/v1/users"): {"json": {"name": "zoe"}},
    ("PATCH", "/v1/users/{name}"): {"json": {"role": "user"}},
    ("PATCH", "/v1/users/{name}/quota"): {"json": {"open_jobs": 50}},
    ("POST", "/v1/keys"): {"json": {}},
}
SOMEBODYS = (
    "{job}",
    "{operation_id}",
    "{prefix}",
    "{export}",
    "{import_id}",
    "{distribution_id}",
    "{source_name}",
    "{mapping_id}",
)
# Statuses of an authorized request: its result depends on the state of the resource.
LET_IN = {200, 201, 202, 204, 303, 409}


@dataclass
class Scene:
    """One resource of each type, recreated after an authorized request may have changed it."""

    api: Api
    toy: Mill
    ada: httpx2.AsyncClient

    async def path(self, path: str) -> str:
        values = {"{name}": "carl", "{seq}": "0", "{source_name}": "letters", "{limiter}": "shop", "{file_id}": "1"}
        if "{name}" in path:
            await self.api.user("carl")
        makers = {
            "{job}": self.failed_job,
            "{import_id}": self.failed_import,
            "{mapping_id}": self.remembered_mapping,
        }
        for name in filter(path.__contains__, makers):
            values[name] = await makers[name]()
        if "{export}" in path:
            answer = await self.ada.post(f"/v1/jobs/{await self.failed_job()}/export?format=csv")
            values["{export}"] = answer.json()["id"]
        if "{distribution_id}" in path:
            _, asked = next(one for one in BODIES.items() if one[0][1] == "/v1/distributions")
            values["{distribution_id}"] = (await self.ada.post("/v1/distributions", **asked)).json()["job_id"]
        if "{operation_id}" in path:
            answer = await self.ada.post(f"/v1/jobs/{await self.failed_job()}/reprocess", json={})
            values["{operation_id}"] = answer.json()["id"]
        if "{prefix}" in path:
            values["{prefix}"] = (await self.ada.post("/v1/keys", json={})).json()["prefix"]
        if "{link}" in path:
            values["{link}"] = await self.api.db.run(users.create_sign_in_token, LOCAL_USER_ID, 60)
        for name, value in values.items():
            path = path.replace(name, value)
        assert "{" not in path, f"add a value for {path}"
        return path

    async def failed_job(self) -> str:
        answer = await self.ada.post("/v1/jobs", json={"kind": "echo", "inputs": [{"fail": "x"}, 1]})
        await drain(self.toy, db=self.api.db)
        return str(answer.json()["id"])

    async def remembered_mapping(self) -> str:
        words = {"resource": "people", "mode": "upsert"}
        await self.ada.post("/v1/imports", params=words, content=MIXED, headers=CSV_TYPE)
        await drain(self.toy, db=self.api.db)
        (mapping,) = (await self.ada.get("/v1/import-mappings")).json()["mappings"]
        return str(mapping["id"])

    async def failed_import(self) -> str:
        words: dict[str, str | bool] = {"resource": "people", "mode": "upsert", "validate_only": True}
        answer = await self.ada.post("/v1/imports", params=words, content=MIXED, headers=CSV_TYPE)
        await drain(self.toy, db=self.api.db)
        return str(answer.json()["job_id"])


@pytest.fixture
async def api(make_api: Callable[..., Awaitable[Api]], tmp_path: Path) -> Api:
    """An API with a resource and a limiter."""
    stock = await stocked(make_api, tmp_path)
    await stock.db.run(limiter_records.declare_limiters, [Limiter("shop", 5.0, 10)])
    return stock


@pytest.fixture
async def scene(api: Api, toy: Mill, ada: httpx2.AsyncClient) -> Scene:
    return Scene(api, toy, ada)


Try = Callable[[httpx2.AsyncClient], Awaitable[int]]


def attempt(scene: Scene, method: str, path: str) -> Try:
    untouched: list[str] = []

    async def go(who: httpx2.AsyncClient) -> int:
        options = dict(BODIES.get((method, path), {}))
        if (method, path) == ("POST", "/v1/session"):
            options = {"json": {"key": scene.api.keys["ada"]}}
        place = untouched.pop() if untouched else await scene.path(path)
        async with who.stream(method, place, **options) as answer:
            if answer.status_code in (401, 403, 404):
                untouched.append(place)
            return answer.status_code

    return go


def test_roles_and_permissions_are_those_that_the_matrix_covers() -> None:
    assert {*Role} == {Role.USER, Role.ADMIN}
    assert {permission for *_, permission in OPERATIONS} == {*auth.Permission}


def test_metrics_route_is_documented_as_public() -> None:
    assert ("GET", "/metrics", "public") in OPERATIONS


@pytest.mark.parametrize(("method", "path", "permission"), OPERATIONS)
async def test_operation_enforces_its_declared_permission(
    scene: Scene,
    api: Api,
    ada: httpx2.AsyncClient,
    bob: httpx2.AsyncClient,
    root: httpx2.AsyncClient,
    method: str,
    path: str,
    permission: str,
) -> None:
    go = attempt(scene, method, path)
    strangers = (api.client(), await expired(api), await revoked(api))
    if permission == "public":
        for principal in (*strangers, ada, bob, root):
            assert await go(principal) in LET_IN
        return
    for stranger in strangers:
        assert await go(stranger) == 401
    if permission == "admin":
        assert await go(ada) == 403
        assert await go(bob) == 403
    else:
        assert await go(ada) in LET_IN
        is_somebodys = any(name in path for name in SOMEBODYS)
        assert await go(bob) == 404 if is_somebodys else await go(bob) in LET_IN
    assert await go(root) in LET_IN


async def expired(api: Api) -> httpx2.AsyncClient:
    return await spoilt(api, "expires_at = tidemill.now() - interval '1 s'")


async def revoked(api: Api) -> httpx2.AsyncClient:
    return await spoilt(api, "revoked_at = tidemill.now()")


async def spoilt(api: Api, change: str) -> httpx2.AsyncClient:
    """A revoked key of ada."""
    ada = await api.user("ada")
    made = (await ada.post("/v1/keys", json={})).json()
    await rows(api.db, f"UPDATE tidemill.api_key SET {change} WHERE prefix = %s", made["prefix"])
    return api.client({"Authorization": f"Bearer {made['key']}"})


def test_route_without_declared_permission_fails_startup(api: Api) -> None:
    bare = APIRouter()

    @bare.get("/bare")
    async def route() -> None: ...

    with pytest.raises(RuntimeError, match="/bare"):
        auth.include_router_with_permissions(api.app, bare)


def test_app_has_no_route_without_declared_permission(api: Api) -> None:
    paths = {route.path for route in api.app.routes if hasattr(route, "path")}
    assert paths == {"/v1/openapi.json"}, "all other routes check permissions"


def test_operation_documents_summary_and_authorization_errors() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            answers = set(operation["responses"])
            needed = {"422"} | ({"401", "403"} if operation["x-permission"] != "public" else set())
            assert needed <= answers, f"{method} {path} does not declare {needed - answers}"
            assert operation.get("summary"), f"{method} {path} has no summary"
    assert DOCUMENT["components"]["schemas"]["ProblemDetails"]["properties"]["request_id"]["examples"]
