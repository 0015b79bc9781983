"""API keys, sessions and roles: who is authenticated, and for how long."""

import asyncio

import httpx2
import pytest

from support import rows, shift_clock
from support.api import Api, signed_in
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.store import users


async def test_me_returns_user_authenticated_by_key(api: Api, ada: httpx2.AsyncClient) -> None:
    me = (await ada.get("/v1/me")).json()
    assert (me["name"], me["role"], me["csrf_token"]) == ("ada", "user", None)
    assert me["by"] == "key " + api.keys["ada"][:11]


async def test_unauthenticated_request_is_401_with_www_authenticate(api: Api) -> None:
    answer = await api.client().get("/v1/me")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_api_key_is_stored_as_prefix_and_hash_only(api: Api, ada: httpx2.AsyncClient) -> None:
    key = api.keys["ada"]
    kept = await rows(api.db, "SELECT prefix, encode(hash, 'hex') AS hash FROM tidemill.api_key")
    assert len(kept) == 1
    assert key.startswith(kept[0][0])
    assert key.split("_")[2] not in str(kept)


async def test_api_key_with_wrong_secret_or_scheme_is_rejected(api: Api, ada: httpx2.AsyncClient) -> None:
    wrong = api.keys["ada"][:-1] + ("0" if api.keys["ada"][-1] != "0" else "1")
    for text in (wrong, api.keys["ada"] + "0", "tm_", "x", "tm_ffffffff_" + "0" * 48):
        assert (await api.client({"Authorization": f"Bearer {text}"}).get("/v1/me")).status_code == 401, text
    for header in ("Bearer", "Basic YTpi", api.keys["ada"]):
        assert (await api.client({"Authorization": header}).get("/v1/me")).status_code == 401, header


async def test_revoked_api_key_is_rejected_immediately(api: Api, ada: httpx2.AsyncClient) -> None:
    second = (await ada.post("/v1/keys", json={"name": "spare"})).json()
    spare = api.client({"Authorization": f"Bearer {second['key']}"})
    assert (await spare.get("/v1/me")).status_code == 200
    assert (await ada.delete(f"/v1/keys/{second['prefix']}")).status_code == 204
    assert (await spare.get("/v1/me")).status_code == 401
    listed = {key["prefix"]: key for key in (await ada.get("/v1/keys")).json()}
    assert listed[second["prefix"]]["revoked_at"] is not None
    assert "key" not in listed[second["prefix"]]


async def test_expired_api_key_is_rejected(api: Api, ada: httpx2.AsyncClient) -> None:
    made = (await ada.post("/v1/keys", json={"expires_in_s": 60})).json()
    client = api.client({"Authorization": f"Bearer {made['key']}"})
    assert (await client.get("/v1/me")).status_code == 200
    await shift_clock(api.db, "61 s")
    assert (await client.get("/v1/me")).status_code == 401


async def test_user_lists_and_revokes_only_own_keys_and_admin_any(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    prefix = api.keys["ada"][:11]
    assert [key["prefix"] for key in (await bob.get("/v1/keys")).json()] == [api.keys["bob"][:11]]
    assert (await bob.delete(f"/v1/keys/{prefix}")).status_code == 404
    assert prefix in {key["prefix"] for key in (await root.get("/v1/keys")).json()}
    assert (await root.delete(f"/v1/keys/{prefix}")).status_code == 204
    assert (await ada.get("/v1/me")).status_code == 401


async def test_api_key_limit_rejects_excess_keys_and_trims_revoked_ones(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "MAX_KEYS_PER_USER", 4)
    monkeypatch.setattr(users, "MAX_INACTIVE_KEYS_PER_USER", 2)
    found = await asyncio.gather(*(ada.post("/v1/keys", json={}) for _ in range(6)))
    assert sorted(answer.status_code for answer in found) == [201, 201, 201, 409, 409, 409]
    assert (await bob.post("/v1/keys", json={})).status_code == 201
    made = [answer.json()["prefix"] for answer in found if answer.status_code == 201]
    for _ in range(4):
        assert (await ada.delete(f"/v1/keys/{made.pop()}")).status_code == 204
        made.append((await ada.post("/v1/keys", json={})).json()["prefix"])
    useless = [key for key in (await ada.get("/v1/keys")).json() if key["revoked_at"] is not None]
    assert len(useless) == 2, "the last ones"


async def test_api_key_for_other_user_requires_admin(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    assert (await bob.post("/v1/keys", json={"user": "ada"})).status_code == 403
    made = (await root.post("/v1/keys", json={"user": "ada"})).json()
    me = (await api.client({"Authorization": f"Bearer {made['key']}"}).get("/v1/me")).json()
    assert me["name"] == "ada"


async def test_user_management_requires_admin_and_protects_local_user(
    root: httpx2.AsyncClient, ada: httpx2.AsyncClient
) -> None:
    assert (await ada.get("/v1/users")).status_code == 403
    assert (await root.post("/v1/users", json={"name": "eve"})).status_code == 201
    assert (await root.post("/v1/users", json={"name": "eve"})).status_code == 409
    assert (await root.patch("/v1/users/eve", json={"role": "admin"})).json()["role"] == "admin"
    assert (await root.delete("/v1/users/eve")).status_code == 204
    assert (await root.get("/v1/users/eve")).status_code == 404
    assert (await root.delete("/v1/users/local")).status_code == 409


async def test_removed_user_can_no_longer_authenticate(
    api: Api, root: httpx2.AsyncClient, ada: httpx2.AsyncClient
) -> None:
    assert (await ada.get("/v1/me")).status_code == 200
    await root.delete("/v1/users/ada")
    assert (await ada.get("/v1/me")).status_code == 401


async def test_sign_in_with_key_sets_httponly_same_site_cookie(api: Api, ada: httpx2.AsyncClient) -> None:
    browser = api.client()
    answer = await browser.post("/v1/session", json={"key": api.keys["ada"]})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert api.keys["ada"] not in cookie
    assert (await browser.get("/v1/me")).json()["by"] == "session"


async def test_browser_write_requires_csrf_token_of_its_session(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    assert (await browser.post("/v1/keys", json={})).status_code == 403
    assert (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": "guess"})).status_code == 403
    assert (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": token})).status_code == 201


async def test_sign_out_invalidates_session_cookie(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    cookie = browser.cookies["tidemill_session"]
    assert (await browser.delete("/v1/session", headers={"X-CSRF-Token": token})).status_code == 204
    again = api.client({"Cookie": f"tidemill_session={cookie}"})
    assert (await again.get("/v1/me")).status_code == 401


async def test_second_sign_in_ends_previous_session_of_browser(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, _ = await signed_in(api, api.keys["ada"])
    before = browser.cookies["tidemill_session"]
    await browser.post("/v1/session", json={"key": api.keys["ada"]})
    assert (await api.client({"Cookie": f"tidemill_session={before}"}).get("/v1/me")).status_code == 401


async def test_sign_in_link_works_only_once(api: Api) -> None:
    token = await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, 60)
    browser = api.client()
    page = await browser.get(f"/sign-in/{token}")
    assert (page.status_code, '<form method="post">' in page.text) == (200, True)
    assert "form-action 'self'" in page.headers["content-security-policy"]
    answer = await browser.post(f"/sign-in/{token}", headers={"Sec-Fetch-Site": "same-origin"})
    assert (answer.status_code, answer.headers["location"]) == (303, "../")
    assert (await browser.get("/v1/me")).json()["name"] == "local"
    assert (await api.client().post(f"/sign-in/{token}")).status_code == 401


async def test_sign_in_link_stays_valid_when_scanners_open_it_or_other_sites_post_it(api: Api) -> None:
    token = await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, 60)
    for _ in range(2):
        assert (await api.client().get(f"/sign-in/{token}")).status_code == 200
        assert "set-cookie" not in (await api.client().head(f"/sign-in/{token}")).headers
        assert (
            await api.client().post(f"/sign-in/{token}", headers={"Sec-Fetch-Site": "cross-site"})
        ).status_code == 403
    assert (await api.client().post(f"/sign-in/{token}")).status_code == 303


async def test_expired_sign_in_link_is_rejected(api: Api) -> None:
    token = await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, -1)
    assert (await api.client().post(f"/sign-in/{token}")).status_code == 401


LIMITS = users.SessionLimits(idle=100, longest=1_000, rotate=50)


async def moved(api: Api, token: str, column: str, seconds: float) -> None:
    """Move a timestamp of a session into the past by this many seconds."""
    async with api.db.connection() as conn:
        await conn.execute(
            f"UPDATE tidemill.session SET {column} = {column} - %s * interval '1 s' WHERE hash = sha256(%s)",
            (seconds, token.encode()),
        )


async def test_session_expires_after_idle_limit(api: Api) -> None:
    token = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await moved(api, token, "seen_at", 99)
    assert await api.db.run(users.authenticate_session, token, LIMITS) is not None
    await moved(api, token, "seen_at", 101)
    assert await api.db.run(users.authenticate_session, token, LIMITS) is None


async def test_session_expires_after_maximum_age_despite_activity(api: Api) -> None:
    token = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await moved(api, token, "created_at", 1_001)
    assert await api.db.run(users.authenticate_session, token, LIMITS) is None


async def test_session_secret_rotates_and_old_secret_expires_after_grace_period(api: Api) -> None:
    token = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await moved(api, token, "issued_at", 51)
    opened = await api.db.run(users.authenticate_session, token, LIMITS)
    assert opened is not None
    assert opened.secret is not None
    assert opened.secret != token
    old = await api.db.run(users.authenticate_session, token, LIMITS)
    assert old is not None
    assert old.secret is None, "a new secret is offered only once"
    new = await api.db.run(users.authenticate_session, opened.secret, LIMITS)
    assert new is not None
    assert new.principal.csrf == opened.principal.csrf, "the CSRF token of the open page stays valid"
    await moved(api, token, "replaced_at", 61)
    assert await api.db.run(users.authenticate_session, token, LIMITS) is None


async def test_rotated_session_secret_keeps_session_age(api: Api) -> None:
    token = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await moved(api, token, "created_at", 990)
    await moved(api, token, "issued_at", 51)
    opened = await api.db.run(users.authenticate_session, token, LIMITS)
    assert opened is not None
    assert opened.secret is not None
    await moved(api, opened.secret, "created_at", 11)
    assert await api.db.run(users.authenticate_session, opened.secret, LIMITS) is None


async def test_role_change_ends_sessions_of_user(api: Api, ada: httpx2.AsyncClient, root: httpx2.AsyncClient) -> None:
    browser, _ = await signed_in(api, api.keys["ada"])
    await root.patch("/v1/users/ada", json={"role": "admin"})
    assert (await browser.get("/v1/me")).status_code == 401


async def test_cleanup_deletes_expired_sessions_and_sign_in_links(api: Api) -> None:
    good = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    old = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await moved(api, old, "created_at", 31 * 86_400)
    await api.db.run(users.create_sign_in_token, LOCAL_USER_ID, -1)
    await api.db.run(users.forget_expired_sessions)
    assert len(await rows(api.db, "SELECT * FROM tidemill.session")) == 1
    assert await rows(api.db, "SELECT * FROM tidemill.sign_in_link") == []
    assert await api.db.run(users.authenticate_session, good, LIMITS) is not None


async def test_admin_created_sign_in_link_signs_user_in_once(api: Api, root: httpx2.AsyncClient) -> None:
    await api.user("zoe")
    made = await root.post("/v1/users/zoe/link")
    assert made.status_code == 201
    assert made.json()["expires_in_s"] == 900
    browser = api.client()
    assert (await browser.post(made.json()["path"])).status_code == 303
    assert (await browser.get("/v1/me")).json()["name"] == "zoe"
    assert (await api.client().post(made.json()["path"])).status_code == 401


async def test_session_list_marks_current_session_and_delete_ends_others(api: Api, ada: httpx2.AsyncClient) -> None:
    here, there = api.client(), api.client()
    for browser in (there, here):
        await browser.post("/v1/session", json={"key": api.keys["ada"]})
    assert [one["is_this"] for one in (await here.get("/v1/sessions")).json()] == [True, False]
    assert [one["is_this"] for one in (await ada.get("/v1/sessions")).json()] == [False, False]
    token = (await here.get("/v1/me")).json()["csrf_token"]
    assert (await here.delete("/v1/sessions", headers={"X-CSRF-Token": token})).status_code == 204
    assert (await there.get("/v1/me")).status_code == 401
    assert [one["is_this"] for one in (await here.get("/v1/sessions")).json()] == [True]
