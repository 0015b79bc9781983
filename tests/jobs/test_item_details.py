"""One item with its traceback and attempts: over HTTP, on the command line, and not in lists."""

import json
from typing import TYPE_CHECKING

import httpx2
import pytest

from jobs.test_job_control_routes import submitted
from jobs.test_list_routes import exported
from support.api import Api
from tidemill import Fail, Item, Mill
from tidemill.core.principal import Role
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.testing import drain

if TYPE_CHECKING:
    from support.command import Tidemill


async def test_item_route_returns_traceback_and_attempts(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, [{"fail": "no such shop"}, 5])
    await drain(toy, db=api.db)
    item = (await ada.get(f"/v1/jobs/{job}/items/0")).json()
    assert (item["error"]["type"], item["error"]["code"]) == ("ValueError", "exhausted")
    assert item["error"]["traceback"].startswith("Traceback (most recent call last):\n")
    assert item["error"]["traceback"].endswith("ValueError: no such shop")
    assert [(one["attempt"], one["status"], one["code"], one["worker"]) for one in item["attempt_history"]] == [
        (1, "retry_wait", "error", "drain"),
        (2, "failed", "exhausted", "drain"),
    ]
    done = (await ada.get(f"/v1/jobs/{job}/items/1")).json()
    assert done["error"] is None
    [one] = done["attempt_history"]
    assert (one["attempt"], one["status"], one["worker"], one["at"]) == (1, "done", None, done["updated_at"])


async def test_lists_of_items_have_no_traceback(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, [{"fail": "no such shop"}])
    await drain(toy, db=api.db)
    for path in (f"/v1/jobs/{job}/items", f"/v1/jobs/{job}/items?statuses=failed", "/v1/dead-letters"):
        answer = await ada.get(path)
        assert answer.status_code == 200, answer.text
        [item] = answer.json()["items"]
        assert item["error"]["reason"] == "ValueError: no such shop"
        assert item["error"]["type"] == "ValueError"
        assert not {"traceback", "attempt_history", "details"} & {*item, *item["error"]}
    [group] = (await ada.get("/v1/dead-letters/groups")).json()["groups"]
    assert (group["type"], group["count"]) == ("ValueError", 1)


@pytest.mark.needs_feature("exports")
async def test_export_of_results_has_no_traceback(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, [{"fail": "no such shop"}])
    await drain(toy, db=api.db)
    file = await exported(api, ada, toy, job, "ndjson")
    assert b"no such shop" in file
    assert b"Traceback" not in file


async def test_other_user_cannot_read_traceback_but_admin_can(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [{"fail": "no such shop"}])
    await drain(toy, db=api.db)
    refused = await bob.get(f"/v1/jobs/{job}/items/0")
    assert refused.status_code == 404
    assert "Traceback" not in refused.text
    admin = await api.user("eve", Role.ADMIN)
    assert "Traceback" in (await admin.get(f"/v1/jobs/{job}/items/0")).text


async def test_details_of_handler_with_the_same_names_are_returned_as_text(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    @toy.handler("strange")
    async def strange(item: Item) -> None:
        raise Fail("no", details={"type": 5, "traceback": [1]})

    await api.db.run(workers.register_kinds, toy.registry.create_all())
    job = await submitted(ada, [1], kind="strange")
    await drain(toy, db=api.db)
    answer = await ada.get(f"/v1/jobs/{job}/items/0")
    assert answer.status_code == 200, answer.text
    assert (answer.json()["error"]["type"], answer.json()["error"]["traceback"]) == ("5", "[1]")


async def test_items_command_prints_traceback_and_attempts(tidemill: "Tidemill", cli_mill: Mill, db: Database) -> None:
    @cli_mill.handler("raises", max_attempts=2)
    async def raises(item: Item) -> str:
        if item.input == "bad":
            raise LookupError(item.input)
        return "good"

    job = await cli_mill.job_async(await cli_mill.submit_async("raises", ["bad", "ok"]))
    await drain(cli_mill, db=db)
    bad, good = map(json.loads, tidemill("items", job.key, "--json").out.splitlines())
    assert bad["error"]["type"] == "LookupError"
    assert bad["error"]["traceback"].endswith("LookupError: bad")
    assert [one["status"] for one in bad["attempt_history"]] == ["retry_wait", "failed"]
    assert [one["status"] for one in good["attempt_history"]] == ["done"]
    assert "error" not in good
