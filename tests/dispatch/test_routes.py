"""Tests of the quarantine routes: only admins can list and delete messages."""

import httpx2
import pytest

from support.api import Api
from tidemill.core.principal import Role
from tidemill.dispatch import quarantine


async def filled(api: Api, n: int) -> httpx2.AsyncClient:
    for number in range(n):
        await api.db.run(
            quarantine.quarantine_message, "w1", b"\x00\xff rubbish %d" % number, "The message is not valid JSON"
        )
    return await api.user("root", Role.ADMIN)


async def test_quarantine_list_is_paged_newest_first_for_admin(api: Api) -> None:
    root = await filled(api, 5)
    first = (await root.get("/v1/quarantine", params={"page_size": 3})).json()
    rest = (await root.get("/v1/quarantine", params={"page_size": 3, "after": first["next_page"]})).json()
    found = first["items"] + rest["items"]
    assert [one["message"] for one in found] == [f"\\x00\\xff rubbish {number}" for number in (4, 3, 2, 1, 0)]
    assert {(one["source"], one["reason"], one["size"]) for one in found} == {
        ("received", "The message is not valid JSON", 12)
    }
    assert "next_page" not in rest
    assert (await root.get("/health")).json()["quarantined"] == 5


async def test_quarantine_clear_removes_messages_up_to_given_id(api: Api) -> None:
    root = await filled(api, 3)
    newest, *_ = (await root.get("/v1/quarantine")).json()["items"]
    await api.db.run(quarantine.quarantine_message, "w1", b"since then", "The message is not valid JSON")
    assert (await root.delete("/v1/quarantine", params={"up_to": newest["id"]})).json() == {"removed": 3}
    assert [one["message"] for one in (await root.get("/v1/quarantine")).json()["items"]] == ["since then"]


async def test_quarantine_is_forbidden_for_non_admin(api: Api, ada: httpx2.AsyncClient) -> None:
    assert (await ada.get("/v1/quarantine")).status_code == 403
    assert (await ada.delete("/v1/quarantine", params={"up_to": 1})).status_code == 403


async def test_quarantine_trim_keeps_only_newest_messages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "QUARANTINE_MAX_MESSAGES", 2)
    await filled(api, 5)
    await api.db.run(quarantine.delete_surplus_quarantined)
    kept = await api.db.read(quarantine.list_quarantined_messages, 10)
    assert [one.message[-1] for one in kept] == ["4", "3"]
