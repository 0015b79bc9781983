"""Only trusted proxies set the client address, and only configured origins may call the API."""

from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import httpx2
import pytest

FORWARDED = {"X-Forwarded-For": "203.0.113.9, 192.0.2.7", "X-Forwarded-Proto": "https"}
Make = Callable[..., Any]


async def address_of_job(ada: httpx2.AsyncClient) -> str:
    made = await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]}, headers=FORWARDED)
    return str((await ada.get(f"/v1/jobs/{made.json()['id']}")).json()["ip_address"])


@pytest.mark.parametrize(
    ("trusted", "seen"), [([], "127.0.0.1"), (["192.0.2.0/24"], "127.0.0.1"), (["127.0.0.1/32"], "192.0.2.7")]
)
async def test_forwarded_address_is_used_only_from_trusted_proxy(make_api: Make, trusted: list[str], seen: str) -> None:
    api = await make_api(trusted_proxies=[ip_network(one) for one in trusted])
    assert await address_of_job(await api.user("ada")) == seen


async def test_session_cookie_is_secure_when_trusted_proxy_forwards_https(make_api: Make) -> None:
    for trusted in ([], [ip_network("127.0.0.0/8")]):
        api = await make_api(trusted_proxies=trusted)
        await api.user(f"ada {len(trusted)}")
        (key,) = api.keys.values()
        answer = await api.client().post("/v1/session", json={"key": key}, headers=FORWARDED)
        assert ("; secure" in answer.headers["set-cookie"].lower()) == bool(trusted)


async def test_cors_allows_configured_origin_without_credentials(make_api: Make) -> None:
    origin = "https://app.example.org"
    for origins in ([], [origin]):
        api = await make_api(cors_origins=origins)
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        answer = await api.client().options("/v1/jobs", headers=headers)
        assert answer.headers.get("access-control-allow-origin") == (origin if origins else None)
        assert "access-control-allow-credentials" not in answer.headers
