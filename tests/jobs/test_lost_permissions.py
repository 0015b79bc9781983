"""A user who lost a permission cannot use it through earlier jobs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import rows
from support.api import Api
from support.import_requests import CSV_TYPE, GOOD, Shop, open_shop
from tidemill import Mill
from tidemill.core.principal import Role

BAD = b"email,name,age\nbad,Bad,old\n"
MENDED = b"_row,email,name,age\n1,evil@x.org,Evil,66\n"


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


async def demoted(api: Api, name: str) -> None:
    boss = await api.user("boss", Role.ADMIN)
    assert (await boss.patch(f"/v1/users/{name}", json={"role": "user"})).status_code == 200


async def test_import_fix_and_reprocess_are_forbidden_after_write_grant_is_lost(shop: Shop) -> None:
    cara = await shop.api.user("cara", Role.ADMIN)
    job = (await shop.post(BAD, who=cara, resource="staff")).json()["job_id"]
    await shop.work()
    await demoted(shop.api, "cara")
    answers = [
        await cara.post(f"/v1/imports/{job}/fixes", content=MENDED, headers=CSV_TYPE),
        await cara.patch(f"/v1/jobs/{job}/items/0", json={"input": {"email": "evil@x.org", "name": "E", "age": "1"}}),
        await cara.post(f"/v1/imports/{job}/reprocess", json={}),
        await cara.post(f"/v1/jobs/{job}/reprocess", json={}),
        await cara.post("/v1/dead-letters/redrive", json={"all_matching": True, "filter": {"job_id": job}}),
        await cara.post("/v1/dead-letters/redrive", json={"all_matching": False, "item_ids": [f"{job}:0"]}),
    ]
    assert [answer.status_code for answer in answers] == [403] * 6
    await shop.work()
    assert await rows(shop.api.db, "SELECT count(*) FROM shop.people") == [(0,)]


async def test_redrive_all_skips_imports_whose_write_grant_is_lost(shop: Shop) -> None:
    cara = await shop.api.user("cara", Role.ADMIN)
    lost = (await shop.post(BAD, who=cara, resource="staff")).json()["job_id"]
    kept = (await shop.post(BAD, who=cara)).json()["job_id"]
    await shop.work()
    await demoted(shop.api, "cara")
    answer = await cara.post("/v1/dead-letters/redrive", json={"all_matching": True})
    assert (answer.status_code, answer.json()["items"]) == (200, 1), answer.text
    open_ones = "SELECT job_id::text FROM tidemill.outcome WHERE status = 'pending'"
    assert await rows(shop.api.db, open_ones) == [(kept,)]
    assert lost != kept


async def test_import_resume_and_kickoff_are_forbidden_after_write_grant_is_lost(shop: Shop) -> None:
    cara = await shop.api.user("cara", Role.ADMIN)
    job = (await shop.post(GOOD, who=cara, resource="staff")).json()["job_id"]
    assert (await cara.post(f"/v1/imports/{job}/pause")).status_code == 200
    await demoted(shop.api, "cara")
    resumed = [await cara.post(f"/v1/{kind}/{job}/resume") for kind in ("imports", "jobs")]
    assert [answer.status_code for answer in resumed] == [403, 403]
    assert (await cara.post(f"/v1/jobs/{job}/kickoff")).status_code == 403
    await shop.work()
    assert await rows(shop.api.db, "SELECT count(*) FROM shop.people") == [(0,)]
    assert (await cara.post(f"/v1/imports/{job}/cancel")).status_code == 200, (
        "cancelling needs no permission on the resource"
    )


async def test_export_reprocess_is_rejected_after_read_grant_is_lost(shop: Shop) -> None:
    cara = await shop.api.user("cara", Role.ADMIN)
    made = await cara.post("/v1/exports", json={"resource": "shop.secrets"})
    assert made.status_code == 202, made.text
    job = made.json()["job_id"]
    await shop.work()
    await demoted(shop.api, "cara")
    again = await cara.post(f"/v1/jobs/{job}/reprocess", json={"statuses": ["done"]})
    assert again.status_code == 404
    assert "Unknown resource" in again.json()["detail"]


async def test_import_fix_is_allowed_while_write_grant_remains(shop: Shop) -> None:
    job = (await shop.post(BAD)).json()["job_id"]
    await shop.work()
    answer = await shop.ada.post(f"/v1/imports/{job}/fixes", content=MENDED, headers=CSV_TYPE)
    assert answer.status_code == 200, answer.text
    await shop.work()
    assert await rows(shop.api.db, "SELECT email FROM shop.people") == [("evil@x.org",)]
