"""Users see only the resources that they may import into or export from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support import rows
from support.import_requests import MIXED, Shop, open_shop
from tidemill import Mill
from tidemill.core.principal import Role


@pytest.fixture
async def shop(make_api: Callable[..., Any], toy: Mill, tmp_path: Path) -> Shop:
    return await open_shop(make_api, toy, tmp_path)


async def test_resource_list_shows_fields_and_permissions_of_caller(shop: Shop) -> None:
    found = {one["name"]: one for one in (await shop.ada.get("/v1/resources")).json()["resources"]}
    assert list(found) == ["people", "staff"]
    assert (found["people"]["may_read"], found["people"]["may_write"], found["people"]["key"]) == (
        True,
        True,
        ["email"],
    )
    assert (found["staff"]["may_read"], found["staff"]["may_write"]) == (True, False)
    fields = {one["name"]: one for one in found["people"]["fields"]}
    assert list(fields) == ["email", "name", "age", "at"]
    assert (fields["email"]["type"], fields["email"]["required"]) == ("text", True)
    assert (fields["at"]["type"], fields["at"]["required"], fields["at"]["writable"]) == ("timestamp", False, True)
    assert not any(one["writable"] for one in found["staff"]["fields"])

    root = await shop.api.user("root", Role.ADMIN)
    everything = (await root.get("/v1/resources")).json()["resources"]
    assert [one["name"] for one in everything] == ["people", "staff", "secrets"]


async def test_resource_list_reports_problem_when_table_is_missing(shop: Shop) -> None:
    await rows(shop.api.db, "DROP TABLE shop.people")
    people = (await shop.ada.get("/v1/resources")).json()["resources"][0]
    assert people["fields"] == []
    assert "shop.people" in people["problem"]


async def test_import_errors_can_be_filtered_by_error_code(shop: Shop) -> None:
    found = await shop.imported(MIXED, validate_only=True, filename="people.csv")
    errors = f"/v1/imports/{found['job_id']}/errors"
    assert (found["errors"], found["file_name"]) == ({"email.pattern": 1, "name.required": 1}, "people.csv")
    assert [one["row"] for one in (await shop.ada.get(errors)).json()["rows"]] == [2, 3]
    of_one = (await shop.ada.get(errors, params={"error_codes": "name.required"})).json()
    assert [one["row"] for one in of_one["rows"]] == [3]
    assert (await shop.ada.get(errors, params={"error_codes": "nothing.such"})).json()["rows"] == []
    page = (await shop.ada.get(errors, params={"page_size": 1})).json()
    foreign = await shop.ada.get(errors, params={"after": page["next_page"], "error_codes": "name.required"})
    assert foreign.status_code == 422


async def test_dry_run_and_promoted_import_link_to_each_other(shop: Shop) -> None:
    trial = await shop.imported(MIXED, validate_only=True)
    assert trial["promoted_to"] is None
    live = (await shop.ada.post(f"/v1/imports/{trial['job_id']}/promote")).json()["job_id"]
    assert (await shop.ada.get(f"/v1/imports/{trial['job_id']}")).json()["promoted_to"] == live
    assert (await shop.ada.get(f"/v1/imports/{live}")).json()["promoted_from"] == trial["job_id"]
