"""Keys, sessions, roles: who is let in, and for how long."""

import asyncio

import httpx2
import pytest

from api.conftest import Api
from support import rows, shift_clock
from tidemill.domain.identity import LOCAL_USER
from tidemill.store import sessions, users


async def test_a_key_says_who_you_are(api: Api, ada: httpx2.AsyncClient) -> None:
    me = (await ada.get("/v1/me")).json()
    assert (me["name"], me["role"], me["csrf_token"]) == ("ada", "user", None)
    assert me["by"] == "key " + api.keys["ada"][:11]


async def test_nobody_is_told_to_say_who_they_are(api: Api) -> None:
    answer = await api.client().get("/v1/me")
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


async def test_only_the_hash_of_a_key_is_kept(api: Api, ada: httpx2.AsyncClient) -> None:
    key = api.keys["ada"]
    kept = await rows(api.db, "SELECT prefix, encode(hash, 'hex') AS hash FROM tidemill.api_key")
    assert len(kept) == 1
    assert key.startswith(kept[0][0])
    assert key.split("_")[2] not in str(kept)


async def test_a_wrong_secret_behind_a_known_prefix_is_refused(api: Api, ada: httpx2.AsyncClient) -> None:
    wrong = api.keys["ada"][:-1] + ("0" if api.keys["ada"][-1] != "0" else "1")
    for text in (wrong, api.keys["ada"] + "0", "tm_", "x", "tm_ffffffff_" + "0" * 48):
        assert (await api.client({"Authorization": f"Bearer {text}"}).get("/v1/me")).status_code == 401, text
    for header in ("Bearer", "Basic YTpi", api.keys["ada"]):
        assert (await api.client({"Authorization": header}).get("/v1/me")).status_code == 401, header


async def test_a_revoked_key_is_refused_at_once(api: Api, ada: httpx2.AsyncClient) -> None:
    second = (await ada.post("/v1/keys", json={"name": "spare"})).json()
    spare = api.client({"Authorization": f"Bearer {second['key']}"})
    assert (await spare.get("/v1/me")).status_code == 200
    assert (await ada.delete(f"/v1/keys/{second['prefix']}")).status_code == 204
    assert (await spare.get("/v1/me")).status_code == 401
    listed = {key["prefix"]: key for key in (await ada.get("/v1/keys")).json()}
    assert listed[second["prefix"]]["revoked_at"] is not None
    assert "key" not in listed[second["prefix"]]


async def test_an_expired_key_is_refused(api: Api, ada: httpx2.AsyncClient) -> None:
    made = (await ada.post("/v1/keys", json={"expires_in_s": 60})).json()
    client = api.client({"Authorization": f"Bearer {made['key']}"})
    assert (await client.get("/v1/me")).status_code == 200
    await shift_clock(api.db, "61 s")
    assert (await client.get("/v1/me")).status_code == 401


async def test_a_user_sees_and_revokes_only_their_own_keys(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    prefix = api.keys["ada"][:11]
    assert [key["prefix"] for key in (await bob.get("/v1/keys")).json()] == [api.keys["bob"][:11]]
    assert (await bob.delete(f"/v1/keys/{prefix}")).status_code == 404
    assert prefix in {key["prefix"] for key in (await root.get("/v1/keys")).json()}
    assert (await root.delete(f"/v1/keys/{prefix}")).status_code == 204
    assert (await ada.get("/v1/me")).status_code == 401


async def test_a_user_has_so_many_good_keys_and_no_more(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(users, "KEYS_MAX", 4)
    monkeypatch.setattr(users, "USELESS_KEPT", 2)
    found = await asyncio.gather(*(ada.post("/v1/keys", json={}) for _ in range(6)))
    assert sorted(answer.status_code for answer in found) == [201, 201, 201, 409, 409, 409]
    assert (await bob.post("/v1/keys", json={})).status_code == 201
    made = [answer.json()["prefix"] for answer in found if answer.status_code == 201]
    for _ in range(4):
        assert (await ada.delete(f"/v1/keys/{made.pop()}")).status_code == 204
        made.append((await ada.post("/v1/keys", json={})).json()["prefix"])
    useless = [key for key in (await ada.get("/v1/keys")).json() if key["revoked_at"] is not None]
    assert len(useless) == 2, "the last ones"


async def test_only_an_admin_makes_keys_for_others(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    assert (await bob.post("/v1/keys", json={"user": "ada"})).status_code == 403
    made = (await root.post("/v1/keys", json={"user": "ada"})).json()
    me = (await api.client({"Authorization": f"Bearer {made['key']}"}).get("/v1/me")).json()
    assert me["name"] == "ada"


async def test_users_are_for_admins(root: httpx2.AsyncClient, ada: httpx2.AsyncClient) -> None:
    assert (await ada.get("/v1/users")).status_code == 403
    assert (await root.post("/v1/users", json={"name": "eve"})).status_code == 201
    assert (await root.post("/v1/users", json={"name": "eve"})).status_code == 409
    assert (await root.patch("/v1/users/eve", json={"role": "admin"})).json()["role"] == "admin"
    assert (await root.delete("/v1/users/eve")).status_code == 204
    assert (await root.get("/v1/users/eve")).status_code == 404
    assert (await root.delete("/v1/users/local")).status_code == 409


async def test_a_removed_user_is_out(api: Api, root: httpx2.AsyncClient, ada: httpx2.AsyncClient) -> None:
    assert (await ada.get("/v1/me")).status_code == 200
    await root.delete("/v1/users/ada")
    assert (await ada.get("/v1/me")).status_code == 401


async def signed_in(api: Api, key: str) -> tuple[httpx2.AsyncClient, str]:
    browser = api.client()
    answer = await browser.post("/v1/session", json={"key": key})
    assert answer.status_code == 201, answer.text
    return browser, answer.json()["csrf_token"]


async def test_a_browser_signs_in_with_a_key_and_gets_a_cookie_that_scripts_cannot_read(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    browser = api.client()
    answer = await browser.post("/v1/session", json={"key": api.keys["ada"]})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert api.keys["ada"] not in cookie
    assert (await browser.get("/v1/me")).json()["by"] == "session"


async def test_a_write_from_a_browser_needs_the_token_of_its_session(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    assert (await browser.post("/v1/keys", json={})).status_code == 403
    assert (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": "guess"})).status_code == 403
    assert (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": token})).status_code == 201


async def test_signing_out_ends_the_session_for_good(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    cookie = browser.cookies["tidemill_session"]
    assert (await browser.delete("/v1/session", headers={"X-CSRF-Token": token})).status_code == 204
    again = api.client({"Cookie": f"tidemill_session={cookie}"})
    assert (await again.get("/v1/me")).status_code == 401


async def test_signing_in_again_ends_the_session_that_was_there_before(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, _ = await signed_in(api, api.keys["ada"])
    before = browser.cookies["tidemill_session"]
    await browser.post("/v1/session", json={"key": api.keys["ada"]})
    assert (await api.client({"Cookie": f"tidemill_session={before}"}).get("/v1/me")).status_code == 401


async def test_a_link_signs_in_once(api: Api) -> None:
    token = await api.db.run(sessions.make_link, LOCAL_USER, 60)
    browser = api.client()
    answer = await browser.get(f"/sign-in/{token}")
    assert (answer.status_code, answer.headers["location"]) == (303, "../")
    assert (await browser.get("/v1/me")).json()["name"] == "local"
    assert (await api.client().get(f"/sign-in/{token}")).status_code == 401


async def test_an_old_link_signs_nobody_in(api: Api) -> None:
    token = await api.db.run(sessions.make_link, LOCAL_USER, -1)
    assert (await api.client().get(f"/sign-in/{token}")).status_code == 401


LIMITS = sessions.Limits(idle=100, longest=1_000, rotate=50)


async def moved(api: Api, token: str, column: str, seconds: float) -> None:
    """As if something of a session had happened so many seconds earlier."""
    async with api.db.connection() as conn:
        await conn.execute(
            f"UPDATE tidemill.session SET {column} = {column} - %s * interval '1 s' WHERE hash = sha256(%s)",
            (seconds, token.encode()),
        )


async def test_an_idle_session_ends(api: Api) -> None:
    token = await api.db.run(sessions.begin, LOCAL_USER)
    await moved(api, token, "seen_at", 99)
    assert await api.db.run(sessions.find, token, LIMITS) is not None
    await moved(api, token, "seen_at", 101)
    assert await api.db.run(sessions.find, token, LIMITS) is None


async def test_a_busy_session_ends_all_the_same_in_the_end(api: Api) -> None:
    token = await api.db.run(sessions.begin, LOCAL_USER)
    await moved(api, token, "created_at", 1_001)
    assert await api.db.run(sessions.find, token, LIMITS) is None


async def test_an_old_secret_is_replaced_and_soon_useless(api: Api) -> None:
    token = await api.db.run(sessions.begin, LOCAL_USER)
    await moved(api, token, "issued_at", 51)
    opened = await api.db.run(sessions.find, token, LIMITS)
    assert opened is not None
    assert opened.secret is not None
    assert opened.secret != token
    old = await api.db.run(sessions.find, token, LIMITS)
    assert old is not None
    assert old.secret is None, "offered once, not by every request that comes with the old one"
    new = await api.db.run(sessions.find, opened.secret, LIMITS)
    assert new is not None
    assert new.principal.csrf == opened.principal.csrf, "the page that is open can go on writing"
    await moved(api, token, "replaced_at", 61)
    assert await api.db.run(sessions.find, token, LIMITS) is None


async def test_a_replaced_secret_keeps_the_age_of_its_session(api: Api) -> None:
    token = await api.db.run(sessions.begin, LOCAL_USER)
    await moved(api, token, "created_at", 990)
    await moved(api, token, "issued_at", 51)
    opened = await api.db.run(sessions.find, token, LIMITS)
    assert opened is not None
    assert opened.secret is not None
    await moved(api, opened.secret, "created_at", 11)
    assert await api.db.run(sessions.find, opened.secret, LIMITS) is None


async def test_a_new_role_ends_the_sessions_of_a_user(
    api: Api, ada: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    browser, _ = await signed_in(api, api.keys["ada"])
    await root.patch("/v1/users/ada", json={"role": "admin"})
    assert (await browser.get("/v1/me")).status_code == 401


async def test_expired_sessions_and_links_are_forgotten(api: Api) -> None:
    good = await api.db.run(sessions.begin, LOCAL_USER)
    old = await api.db.run(sessions.begin, LOCAL_USER)
    await moved(api, old, "created_at", 31 * 86_400)
    await api.db.run(sessions.make_link, LOCAL_USER, -1)
    await api.db.run(sessions.forget_expired)
    assert len(await rows(api.db, "SELECT * FROM tidemill.session")) == 1
    assert await rows(api.db, "SELECT * FROM tidemill.sign_in_link") == []
    assert await api.db.run(sessions.find, good, LIMITS) is not None


async def test_an_admin_makes_a_link_that_signs_somebody_in_once(api: Api, root: httpx2.AsyncClient) -> None:
    await api.user("zoe")
    made = await root.post("/v1/users/zoe/link")
    assert made.status_code == 201
    assert made.json()["expires_in_s"] == 900
    browser = api.client()
    assert (await browser.get(made.json()["path"])).status_code == 303
    assert (await browser.get("/v1/me")).json()["name"] == "zoe"
    assert (await api.client().get(made.json()["path"])).status_code == 401


async def test_other_browsers_are_listed_and_signed_out(api: Api, ada: httpx2.AsyncClient) -> None:
    here, there = api.client(), api.client()
    for browser in (there, here):
        await browser.post("/v1/session", json={"key": api.keys["ada"]})
    assert [one["is_this"] for one in (await here.get("/v1/sessions")).json()] == [True, False]
    assert [one["is_this"] for one in (await ada.get("/v1/sessions")).json()] == [False, False]
    token = (await here.get("/v1/me")).json()["csrf_token"]
    assert (await here.delete("/v1/sessions", headers={"X-CSRF-Token": token})).status_code == 204
    assert (await there.get("/v1/me")).status_code == 401
    assert [one["is_this"] for one in (await here.get("/v1/sessions")).json()] == [True]
