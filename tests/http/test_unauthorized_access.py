"""Users cannot access data of others, exceed rate limits, or read secrets."""

import asyncio
import json
from collections.abc import Callable
from ipaddress import ip_network
from typing import Any

import httpx2
import pytest

from jobs.test_job_control_routes import failing, submitted
from jobs.test_list_routes import walk
from support import rows
from support.api import Api, signed_in
from support.raw_http import exchanged, is_dressed, is_problem, listening
from tidemill import Mill
from tidemill.core.principal import LOCAL_USER_ID, Role
from tidemill.store import users
from tidemill.testing import drain

HOST = "Host: tidemill"


async def test_authorization_header_must_be_single_wellformed_bearer_key(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    mine, other = api.keys["ada"], api.keys["bob"]
    good = [f"Bearer {mine}", f"bearer {mine}", f"BEARER  {mine} "]
    bad = [f"Bearer {mine} x", f"Bearer {mine},{mine}", f'Bearer "{mine}"', f"Bearer\t{mine}", f"Bearer{mine}", mine]
    bad += [f"Basic {mine}", f"Bearer {mine.upper()}", f"Bearer {mine}\xa0", f"Bearer {mine[:-1]}", "Bearer ", ""]
    for status, headers in ((200, good), (401, bad)):
        for header in headers:
            answer = await exchanged(api, "GET /v1/me HTTP/1.1", HOST, f"Authorization: {header}")
            assert answer.status_code == status, header
    for first, second in ((mine, other), (other, mine), (mine, mine), (mine, "tm_00000000_" + "0" * 48)):
        two = (f"Authorization: Bearer {first}", f"Authorization: Bearer {second}")
        assert (await exchanged(api, "GET /v1/me HTTP/1.1", HOST, *two)).status_code == 401


async def test_invalid_key_is_rejected_even_with_valid_session_cookie(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    assert (await browser.get("/v1/me", headers={"Authorization": "Bearer x"})).status_code == 401
    both = {"Authorization": "Bearer x", "X-CSRF-Token": token}
    assert (await browser.post("/v1/keys", json={}, headers=both)).status_code == 401


async def test_browser_writes_without_valid_csrf_token_are_forbidden(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    browser, _ = await signed_in(api, api.keys["ada"])
    _, foreign = await signed_in(api, api.keys["bob"])
    job = await submitted(ada, [1])
    tokens: tuple[dict[str, str], ...] = ({}, {"X-CSRF-Token": ""}, {"X-CSRF-Token": foreign})
    for headers in (*tokens, {"X-CSRFToken": foreign}, {"X-HTTP-Method-Override": "GET"}):
        assert (await browser.delete(f"/v1/jobs/{job}", headers=headers)).status_code == 403
        assert (await browser.post(f"/v1/jobs/{job}/pause", headers=headers)).status_code == 403
        form = headers | {"content-type": "text/plain"}
        assert (await browser.post("/v1/keys", content=b"{}", headers=form)).status_code == 403
        assert (await browser.post("/v1/jobs?kind=echo", content=b"a\n", headers=form)).status_code == 403
    for method in ("HEAD", "OPTIONS", "TRACE"):
        assert (await browser.request(method, f"/v1/jobs/{job}")).status_code == 405
        assert (await browser.request(method, "/v1/session")).status_code == 405
    assert (await browser.get(f"/v1/jobs/{job}")).json()["status"] == "pending"


async def test_sign_in_rejects_form_content_types(api: Api, ada: httpx2.AsyncClient) -> None:
    body = json.dumps({"key": api.keys["ada"]}).encode()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = await api.client().post("/v1/session", content=body, headers={"content-type": kind})
        assert 400 <= answer.status_code < 500, kind
        assert "set-cookie" not in answer.headers


async def test_user_id_parameter_cannot_expose_other_users_lists(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [1])
    other, own = api.ids["ada"], api.ids["bob"]
    lists = ("jobs", "pending", "dead-letters", "dead-letters/causes", "operations")
    foreign = ["all", "ALL", "ada", "Ada", str(other), f"0{other}", f" {other}", f"+{other}", "*", "%25", "local", "0"]
    foreign += [f"{own},{other}", "m\u0435", "all\u200b", "\uff10", "null", "true", "me,all"]
    for path in lists:
        for name in foreign:
            answer = await bob.get(f"/v1/{path}", params={"user_id": name})
            assert answer.status_code == 403, f"{path} {name}"
        for name in ("me", "bob", str(own)):
            answer = await bob.get(f"/v1/{path}", params={"user_id": name})
            assert (answer.status_code, job in answer.text) == (200, False)
        twice = await bob.get(f"/v1/{path}?user_id=me&user_id=all")
        assert twice.status_code in (403, 422)
        for name in ("ALL", "nobody", "all\u200b", "-1", str(2**63), "9" * 90):
            assert (await root.get(f"/v1/{path}", params={"user_id": name})).status_code == 404, name
    assert (await bob.get("/v1/jobs?userId=all")).status_code == 403
    for more in ({"user_id": "all"}, {"userId": "ada"}, {"userId": "all", "user_id": "me"}):
        answer = await bob.post("/v1/dead-letters/redrive", json={"all_matching": True} | more)
        assert answer.status_code in (403, 422), more


async def test_user_creation_rejects_reserved_and_ambiguous_names(root: httpx2.AsyncClient) -> None:
    for name in ("me", "all", "ME", "All", "7", "", " ", "a ", "a\nb", "a\u202eb", "x" * 101):
        assert (await root.post("/v1/users", json={"name": name})).status_code == 422, name


async def test_item_ids_of_other_users_jobs_are_rejected_or_ignored(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    theirs, mine, second = await failing(api, toy, ada), await failing(api, toy, bob), await failing(api, toy, bob)
    for other in (theirs, second):
        asked = {"scope": "items", "item_ids": [f"{mine}:0", f"{other}:0"]}
        answer = await bob.post(f"/v1/jobs/{mine}/reprocess", json=asked)
        assert answer.status_code == 422
    both = {"item_ids": [f"{theirs}:0", f"{mine}:0"]}
    assert (await bob.post("/v1/dead-letters/redrive", json=both)).json()["items"] == 1, "only items of the caller"
    but = {"all_matching": True, "except": [f"{theirs}:0", f"{mine}:1", f"{second}:0"]}
    assert (await bob.post("/v1/dead-letters/redrive", json=but)).json()["items"] == 3
    narrow = {"all_matching": True, "filter": {"job_id": theirs}}
    assert (await bob.post("/v1/dead-letters/redrive", json=narrow)).json()["items"] == 0
    for path in (f"jobs/{theirs}/items/0", f"jobs/{theirs}/items", f"jobs/{theirs}/batches"):
        assert (await bob.get(f"/v1/{path}")).status_code == 404
    for query in (f"pending?job_id={theirs}", f"dead-letters?job_id={theirs}"):
        answer = await bob.get(f"/v1/{query}")
        assert answer.status_code == 404 or answer.json()["items"] == [], query
    counts = (await ada.get(f"/v1/jobs/{theirs}")).json()["counts"]
    assert counts["failed"] == 3, "the items are unchanged"


async def test_admin_cursor_used_by_other_user_exposes_no_foreign_rows(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    made = [(who, await failing(api, toy, who)) for who in (ada, ada, bob)]
    for who, job in made:
        await who.post(f"/v1/jobs/{job}/reprocess", json={"scope": "items", "item_ids": [f"{job}:0"]})
    names = {"jobs": "jobs", "pending": "items", "dead-letters": "items", "operations": "operations"}
    for path, name in names.items():
        page = (await root.get(f"/v1/{path}?user_id=all&page_size=1")).json()
        answer = await bob.get(f"/v1/{path}?after={page['next_page']}")
        if answer.status_code != 422:
            whose = {row.get("user_id", row.get("owner_id")) for row in answer.json()[name]}
            assert whose <= {api.ids["bob"]}, path
        own = {row["id"] for row in await walk(bob, f"/v1/{path}", name, page_size=1)}
        everything = {row["id"] for row in await walk(root, f"/v1/{path}", name, page_size=1, user_id="all")}
        assert own < everything, path


async def test_export_download_by_other_user_is_404_even_with_valid_etag(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [1])
    await drain(toy, db=api.db)
    path = (await ada.post(f"/v1/jobs/{job}/export?format=csv")).headers["location"]
    await drain(toy, db=api.db)
    tag = (await ada.get(f"{path}/download")).headers["etag"]
    for headers in ({}, {"If-None-Match": tag}, {"If-Match": tag}, {"If-None-Match": "*"}, {"Range": "bytes=0-9"}):
        assert (await bob.get(f"{path}/download", headers=headers)).status_code == 404
        assert (await api.client().get(f"{path}/download", headers=headers)).status_code == 401


async def test_rate_limit_ignores_forwarded_address_and_limits_each_user(make_api: Callable[..., Any]) -> None:
    api = await make_api(rate_limit_per_s=1, rate_limit_burst=5)
    ada, bob = await api.user("ada"), await api.user("bob")
    answers = [await ada.get("/v1/me", headers={"X-Forwarded-For": f"192.0.2.{n}"}) for n in range(20)]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert {answer.status_code for answer in answers} == {200, 429}
    assert len(answers) - len(refused) < 15
    for answer in refused:
        assert is_problem(answer)
        assert int(answer.headers["retry-after"]) >= 1
        assert ";r=0;" in answer.headers["ratelimit"]
        assert answer.headers["ratelimit-policy"] == '"default";q=5;w=5'
    assert (await bob.get("/v1/me")).status_code == 200, "each user has a separate rate limit"


async def test_failed_authentication_is_rate_limited_despite_spoofed_headers(make_api: Callable[..., Any]) -> None:
    api = await make_api(rate_limit_per_s=1, rate_limit_burst=5)
    ada = await api.user("ada")
    stranger = api.client()

    def headers(n: int) -> dict[str, str]:
        hidden = dict.fromkeys(("X-Forwarded-For", "X-Real-IP", "Forwarded", "CF-Connecting-IP"), f"198.51.100.{n}")
        return hidden | {"Authorization": f"Bearer tm_{n:08x}_{n:048x}"}

    tries: list[Callable[[int], Any]] = [
        lambda n: stranger.get("/v1/me", headers=headers(n)),
        lambda n: stranger.post("/v1/session", json={"key": f"tm_{n:08x}_{n:048x}"}, headers=headers(n)),
        lambda n: stranger.post(f"/sign-in/{n:043}", headers=headers(n)),
        lambda n: stranger.get("/v1/me", headers={"Cookie": f"tidemill_session={n:043}"}),
    ]
    for attempt in tries:
        found = [(await attempt(n)).status_code for n in range(15)]
        assert set(found) <= {401, 429}
        assert found.count(429) >= 3
    assert (await ada.get("/v1/me")).status_code == 200, "unauthenticated requests do not throttle users with a key"


async def test_rate_limit_groups_ipv6_callers_by_network(make_api: Callable[..., Any]) -> None:
    api = await make_api(rate_limit_per_s=1, rate_limit_burst=5, trusted_proxies=[ip_network("127.0.0.1/32")])
    networks = {"2001:db8:0:1::{:x}": True, "2001:db8:0:{:x}::1": False, "::ffff:192.0.2.{}": False}
    for pattern, is_one in networks.items():
        headers = [{"X-Forwarded-For": pattern.format(n + 2)} for n in range(15)]
        found = {(await api.client().get("/v1/me", headers=one)).status_code for one in headers}
        assert found == ({401, 429} if is_one else {401}), pattern


async def test_security_headers_are_on_success_and_error_responses(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    path = (await ada.post(f"/v1/jobs/{job}/export?format=csv")).headers["location"]
    early = await ada.get(f"{path}/download")
    await drain(toy, db=api.db)
    link = await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, 60)
    answers = [
        early,
        await ada.get("/v1/me"),
        await ada.get("/health"),
        await ada.get(f"{path}/download"),
        await ada.get("/v1/openapi.json"),
        await ada.get("/nowhere"),
        await ada.get("/v1/users"),
        await ada.get("/v1/jobs?page_size=0"),
        await ada.put("/v1/jobs"),
        await ada.post("/v1/keys", content=b"{", headers={"content-type": "application/json"}),
        await ada.post("/v1/jobs?kind=echo", content=b"{", headers={"content-type": "application/pdf"}),
        await api.client().get("/v1/me"),
        await api.client().post(f"/sign-in/{link}"),
        await ada.delete(f"/v1/jobs/{job}"),
    ]
    assert {answer.status_code for answer in answers} >= {200, 204, 303, 400, 401, 403, 404, 405, 409, 415, 422}
    for answer in answers:
        assert is_dressed(answer), answer.request.url
        assert "server" not in answer.headers
        assert answer.status_code < 400 or is_problem(answer), answer.request.url


async def test_server_error_exposes_request_id_but_no_internals(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await rows(api.db, "ALTER TABLE tidemill.worker RENAME TO elsewhere")
    answer = await (await api.user("root", Role.ADMIN)).get("/v1/workers", headers={"X-Request-ID": "find-me"})
    assert (answer.status_code, is_problem(answer)) == (500, True)
    assert answer.json()["request_id"] == "find-me"
    for word in ("elsewhere", "worker", "SELECT", "psycopg", "Traceback", ".py", "relation", api.settings.home.name):
        assert word not in answer.text


async def test_secrets_never_appear_in_responses_or_events(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, 60)
    wrong = "tm_00000000_" + "7" * 48
    with listening() as told:
        browser, csrf = await signed_in(api, api.keys["ada"])
        cookie = browser.cookies["tidemill_session"]
        made = (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": csrf})).json()["key"]
        answers = [
            await ada.get("/v1/me"),
            await ada.get("/v1/keys"),
            await ada.get("/nowhere"),
            await api.client({"Authorization": f"Bearer {wrong}"}).get("/v1/me"),
            await api.client().post("/v1/session", json={"key": wrong}),
            await api.client().post("/v1/session", json={"key": wrong, "link": link}),
            await api.client().post("/v1/session", json={"key": wrong, "lnik": link}),
            await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": cookie}),
            await ada.get("/v1/jobs", params={"user_id": made}),
            await api.client().put(f"/sign-in/{link}"),
            await api.client().get(f"/sign-in/{link}/more"),
            await api.client().get(f"/sign-in/{link}"),
            await api.client().post(f"/sign-in/{link}"),
            await api.client().post(f"/sign-in/{link}"),
        ]

        async def broken(*_: object) -> None:
            raise RuntimeError("a bug")

        monkeypatch.setattr(users, "redeem_sign_in_token", broken)
        answers.append(await api.client().post(f"/sign-in/{link}"))
        await asyncio.sleep(0)
    secrets = (api.keys["ada"], made, wrong, link, cookie, csrf)
    assert answers[-1].status_code == 500
    assert ("request.failed", "/sign-in/{link}") in {(name, fields.get("route")) for name, fields in told}
    for secret in secrets:
        assert secret not in repr(told), "in a log line"
        assert not any(secret in answer.text for answer in answers if answer.request.url.path != "/v1/jobs")
