"""Session secrets of a browser: rotation, and revocation."""

import httpx2
import pytest

from jobs.test_job_control_routes import submitted
from support import shift_clock
from support.api import Api, signed_in
from tidemill import Mill
from tidemill.rest.auth import SESSION_COOKIE
from tidemill.testing import drain

NOWHERE = "/v1/jobs/J20200101_000001"


async def status(api: Api, secret: str) -> int:
    """Authenticate a session with this secret."""
    return (await api.client({"Cookie": f"{SESSION_COOKIE}={secret}"}).get("/v1/me")).status_code


async def offered(api: Api, secret: str, path: str = "/v1/me") -> tuple[int, str | None]:
    """Send a request with this secret; return its status and the new secret. Streams are not read to the end."""
    async with api.client({"Cookie": f"{SESSION_COOKIE}={secret}"}).stream("GET", path) as answer:
        return answer.status_code, answer.cookies.get(SESSION_COOKIE)


async def secrets(api: Api, n: int) -> list[str]:
    browsers = [(await signed_in(api, api.keys["ada"]))[0] for _ in range(n)]
    return [browser.cookies[SESSION_COOKIE] for browser in browsers]


async def test_session_secret_rotates_on_every_kind_of_response(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, [1])
    await drain(toy, db=api.db)
    export = (await ada.post(f"/v1/jobs/{job}/export?format=csv")).headers["location"]
    await drain(toy, db=api.db)
    paths = {"/v1/me": 200, "/v1/jobs": 200, f"{export}/download": 200, NOWHERE: 404, "/v1/users": 403}
    paths |= {"/v1/jobs?page_size=0": 422, "/v1/events": 200, f"/v1/jobs/{job}/events": 200}
    old = await secrets(api, len(paths))
    await shift_clock(api.db, "901 s")
    found = [await offered(api, secret, path) for secret, path in zip(old, paths, strict=True)]
    assert [code for code, _ in found] == list(paths.values())
    new = [secret for _, secret in found if secret is not None]
    assert len(set(new) - set(old)) == len(paths), "each session got a different secret"
    assert {await status(api, secret) for secret in new} == {200}
    assert {await status(api, secret) for secret in old} == {200}, "requests in progress still use it"
    await shift_clock(api.db, "962 s")
    assert {await status(api, secret) for secret in new} == {200}
    assert {await status(api, secret) for secret in old} == {401}, "the new secret is in use"


async def test_session_survives_lost_response_with_rotated_secret(api: Api, ada: httpx2.AsyncClient) -> None:
    (old,) = await secrets(api, 1)
    await shift_clock(api.db, "901 s")
    assert (await offered(api, old))[1] is not None
    assert (await offered(api, old))[1] is None, "a new secret is offered only once"
    await shift_clock(api.db, "1790 s")
    assert await status(api, old) == 200, "no other secret was used"
    assert len((await ada.get("/v1/sessions")).json()) == 1, "one browser, regardless of the offered secrets"
    await shift_clock(api.db, "1803 s")
    _, second = await offered(api, old)
    assert second is not None
    assert await status(api, second) == 200
    await shift_clock(api.db, "1864 s")
    assert (await status(api, old), await status(api, second)) == (401, 200)


async def test_sign_out_ends_old_and_rotated_secret_of_session(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    (other,) = await secrets(api, 1)
    old = browser.cookies[SESSION_COOKIE]
    await shift_clock(api.db, "901 s")
    await browser.get("/v1/me")
    new = browser.cookies[SESSION_COOKIE]
    answer = await browser.delete("/v1/session", headers={"X-CSRF-Token": token})
    assert answer.status_code == 204
    assert [header.partition(";")[0] for header in answer.headers.get_list("set-cookie")] == [f'{SESSION_COOKIE}=""']
    assert new != old
    assert [await status(api, secret) for secret in (old, new, other)] == [401, 401, 200]


async def test_sign_out_with_secret_due_for_rotation_leaves_no_session(api: Api, ada: httpx2.AsyncClient) -> None:
    browser, token = await signed_in(api, api.keys["ada"])
    old = browser.cookies[SESSION_COOKIE]
    await shift_clock(api.db, "901 s")
    answer = await browser.delete("/v1/session", headers={"X-CSRF-Token": token})
    assert [header.partition(";")[0] for header in answer.headers.get_list("set-cookie")] == [f'{SESSION_COOKIE}=""']
    assert await status(api, old) == 401
    assert (await ada.get("/v1/sessions")).json() == []


@pytest.mark.parametrize("is_revoked", [True, False], ids=["revoked", "expired"])
async def test_session_ends_when_its_api_key_is_revoked_or_expires(
    api: Api, ada: httpx2.AsyncClient, *, is_revoked: bool
) -> None:
    made = (await ada.post("/v1/keys", json={"expires_in_s": 1_000})).json()
    browser, token = await signed_in(api, made["key"])
    await shift_clock(api.db, "901 s")
    assert (await browser.get("/v1/me")).status_code == 200
    assert len((await ada.get("/v1/sessions")).json()) == 1
    if is_revoked:
        await ada.delete(f"/v1/keys/{made['prefix']}")
    else:
        await shift_clock(api.db, "1001 s")
    assert (await browser.get("/v1/me")).status_code == 401, "also with a secret that was issued later"
    assert (await browser.post("/v1/keys", json={}, headers={"X-CSRF-Token": token})).status_code == 401
    assert (await ada.get("/v1/sessions")).json() == []
