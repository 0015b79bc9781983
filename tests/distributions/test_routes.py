"""HTTP routes of distributions: submit, progress, pages, downloads, fixes and redrive."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest

from support import FAILED, rows, settle, take, verdict
from support.api import Api
from support.import_requests import stocked
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.testing import drain

SENT = {"first_name": "Ada", "sent_on": 20240202}


@pytest.fixture
async def api(make_api: Callable[..., Awaitable[Api]], tmp_path: Path) -> Api:
    found = await stocked(make_api, tmp_path)
    await rows(found.db, "INSERT INTO shop.people (email, name, age) VALUES ('ada@x.org', 'Ada', 36)")
    return found


def text_of(url: str) -> str:
    return Path(httpx2.URL(url).path).read_text()


def remove(url: str) -> None:
    Path(httpx2.URL(url).path).unlink()


async def worked(api: Api, who: httpx2.AsyncClient, **asked: Any) -> dict[str, Any]:
    answer = await who.post("/v1/distributions", json={"dataset": "letters", "inputs": [SENT]} | asked)
    assert answer.status_code == 202, answer.text
    await drain(Mill(api.settings), db=api.db)
    return dict((await who.get(f"/v1/distributions/{answer.json()['key']}")).json())


async def test_distribution_reports_file_paths_and_reuses_unchanged_files(api: Api, ada: httpx2.AsyncClient) -> None:
    first = await worked(api, ada, inputs=[{"firstName": "Ada", "sentOn": "2024-02-02"}, SENT | {"edition": 2}])
    assert first["status"] == "completed"
    assert (first["total"], first["done"], first["files_generated"], first["files_reused"]) == (2, 2, 2, 0)
    assert first["error_message"] is None
    assert first["created_at"] <= first["started_at"] <= first["completed_at"]
    content = first["data_content"]
    assert [(one["first_name"], one["sent_on"], one["edition"]) for one in content] == [
        ("Ada", 20240202, None),
        ("Ada", 20240202, 2),
    ]
    assert all(f"/{first['key']}/Ada_20240202_" in one["path"] for one in content)
    assert text_of(content[0]["path"]) == "email,name,age\nada@x.org,Ada,36\n"
    second = await worked(api, ada, inputs=[SENT, SENT | {"first_name": "Bob"}])
    assert (second["files_generated"], second["files_reused"]) == (1, 1)
    assert [one["reused"] for one in second["data_content"]] == [True, False]
    assert second["data_content"][0]["path"] == content[0]["path"]
    third = await worked(api, ada, reuse={"enabled": False})
    assert third["files_generated"] == 1


async def test_distribution_fix_is_rejected_when_it_duplicates_another_input(api: Api, ada: httpx2.AsyncClient) -> None:
    asked = {"dataset": "letters", "inputs": [SENT, SENT | {"first_name": "Bob"}], "policy": {"mode": "continue"}}
    job_id = (await ada.post("/v1/distributions", json=asked)).json()["job_id"]
    lease = await take(api.db, UUID(job_id))
    await settle(api.db, lease, [verdict(0, FAILED), verdict(1, FAILED)])

    async def corrected(seq: int, **given: Any) -> httpx2.Response:
        return await ada.patch(f"/v1/jobs/{job_id}/items/{seq}", json={"input": given})

    answer = await corrected(1, firstName="Ada", sentOn="2024-02-02")
    assert (answer.status_code, answer.json()["detail"]) == (409, "Another input of this distribution is identical")
    answer = await corrected(1, first_name="Cy")
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/input/sent_on")
    assert (await corrected(1, firstName="Cy", sentOn="2024-02-02")).status_code == 200
    assert (await corrected(0, **SENT | {"first_name": "Cy"})).status_code == 409
    assert (await corrected(0, **SENT | {"first_name": "Bob"})).status_code == 200
    await ada.post(f"/v1/distributions/{job_id}/redrive")
    await drain(Mill(api.settings), db=api.db)
    content = (await ada.get(f"/v1/distributions/{job_id}")).json()["data_content"]
    assert [(one["first_name"], one["status"]) for one in content] == [("Bob", "done"), ("Cy", "done")]


async def test_distribution_file_download_is_limited_to_owner(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    made = await worked(api, ada, inputs=[SENT, SENT | {"edition": 2}])
    again = await worked(api, ada)
    one = again["data_content"][0]
    assert one["reused"]
    for url in (made["data_content"][0]["download_url"], one["download_url"]):
        file = await ada.get(url)
        assert (file.status_code, file.text) == (200, "email,name,age\nada@x.org,Ada,36\n")
        assert file.headers["content-type"].startswith("text/csv")
        assert file.headers["content-disposition"] == f'attachment; filename="{one["path"].rpartition("/")[2]}"'
        assert (await ada.get(url, headers={"Range": "bytes=0-4"})).text == "email"
        assert (await ada.get(url, headers={"If-None-Match": file.headers["etag"]})).status_code == 304
        assert (await bob.get(url)).status_code == 404
    assert (await ada.get(f"/v1/distributions/{again['key']}/files/1")).status_code == 404
    remove(one["path"])
    assert (await ada.get(one["download_url"])).status_code == 409


async def test_distribution_download_of_failed_input_conflicts(api: Api, ada: httpx2.AsyncClient) -> None:
    await rows(api.db, "ALTER TABLE shop.people RENAME TO folk")
    failed = await worked(api, ada)
    assert failed["data_content"][0]["download_url"] is None
    answer = await ada.get(f"/v1/distributions/{failed['key']}/files/0")
    assert (answer.status_code, "has no file" in answer.json()["detail"]) == (409, True)


async def test_distribution_inputs_are_paged_in_order(api: Api, ada: httpx2.AsyncClient) -> None:
    told = await worked(api, ada, inputs=[SENT | {"edition": n} for n in range(25)])
    assert "next_page" not in told
    seen, after = [], ""
    while True:
        page = (await ada.get(f"/v1/distributions/{told['job_id']}?page_size=10&after={after}")).json()
        seen += [one["edition"] for one in page["data_content"]]
        if "next_page" not in page:
            break
        after = page["next_page"]
    assert seen == list(range(25))


async def test_invalid_distribution_request_points_at_each_error_and_creates_no_job(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    wrong = [SENT, {"first_name": 7, "sent_on": 20240230, "edition": "x", "a/b": 1}, SENT]
    answer = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": wrong})
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [
        "#/inputs/1/a~1b",
        "#/inputs/1/first_name",
        "#/inputs/1/sent_on",
        "#/inputs/1/edition",
        "#/inputs/2",
    ]
    for body, pointer in (
        ({"dataset": "letter", "inputs": [SENT]}, "#/dataset"),
        ({"dataset": "hidden", "inputs": [{"word": "x"}]}, "#/dataset"),
        ({"dataset": "letters", "inputs": []}, "#/inputs"),
        ({"dataset": "letters", "inputs": [SENT], "format": "pdf"}, "#/format"),
        ({"dataset": "letters", "inputs": [SENT], "format": "xlsx", "compression": "gzip"}, "#/compression"),
        ({"dataset": "letters", "inputs": [SENT], "reuse": {"days": -1}}, "#/reuse/days"),
    ):
        answer = await ada.post("/v1/distributions", json=body)
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, pointer), answer.text
    assert (await ada.get("/v1/distributions")).json() == {"distributions": []}


async def test_distribution_idempotency_key_returns_existing_and_rejects_other_body(ada: httpx2.AsyncClient) -> None:
    asked = {"dataset": "letters", "inputs": [SENT]}
    key = {"Idempotency-Key": "daily"}
    answers = [await ada.post("/v1/distributions", json=asked, headers=key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 200]
    assert answers[0].json()["job_id"] == answers[1].json()["job_id"]
    other = await ada.post("/v1/distributions", json=asked | {"reuse": {"days": 1}}, headers=key)
    assert other.status_code == 422
    assert len((await ada.get("/v1/distributions")).json()["distributions"]) == 1


async def test_distribution_redrive_requeues_failed_inputs_and_completes(api: Api, ada: httpx2.AsyncClient) -> None:
    await rows(api.db, "ALTER TABLE shop.people RENAME TO folk")
    failed = await worked(api, ada)
    assert failed["status"] == "failed"
    reason = failed["data_content"][0]["error"]["reason"]
    assert failed["error_message"] == f'An item failed; the failure policy is "fail_fast"; input 1: {reason}'
    assert failed["data_content"][0]["error"]["code"] == "query"
    assert failed["data_content"][0]["path"] is None
    await rows(api.db, "ALTER TABLE shop.folk RENAME TO people")
    answer = await ada.post(f"/v1/distributions/{failed['job_id']}/redrive")
    assert (answer.status_code, answer.json()["items"]) == (200, 1)
    await drain(Mill(api.settings), db=api.db)
    assert (await ada.get(f"/v1/distributions/{failed['key']}")).json()["status"] == "completed"


async def test_files_of_distributions_count_in_storage_quota_also_after_their_job_is_deleted(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    root = await api.user("root", Role.ADMIN)

    async def limit(stored_bytes: int | str) -> None:
        assert (await root.patch("/v1/users/ada/quota", json={"stored_bytes": stored_bytes})).status_code == 200

    first = await worked(api, ada)
    size = len(text_of(first["data_content"][0]["path"]))
    await limit(size)
    asked = {"dataset": "letters", "inputs": [SENT | {"edition": 2}]}
    rejected = await ada.post("/v1/distributions", json=asked)
    assert (rejected.status_code, rejected.json()["quota"]["name"]) == (403, "stored_bytes")
    await limit(size + 1)
    waiting = await ada.post("/v1/distributions", json=asked)
    assert waiting.status_code == 202
    await limit(size)
    await drain(Mill(api.settings), db=api.db)
    failed = (await ada.get(f"/v1/distributions/{waiting.json()['key']}")).json()
    assert failed["data_content"][0]["error"]["code"] == "quota_exceeded"
    assert 'Quota "stored_bytes" exceeded' in failed["error_message"]
    await limit("default")
    await ada.post(f"/v1/distributions/{failed['job_id']}/redrive")
    await drain(Mill(api.settings), db=api.db)
    assert (await ada.get(f"/v1/distributions/{failed['key']}")).json()["status"] == "completed"
    assert (await ada.delete(f"/v1/jobs/{first['job_id']}")).status_code == 204
    used = (await ada.get("/v1/limits")).json()["quota"]["stored_bytes"]["used"]
    assert used == 2 * size, "the file of the deleted job stays"
    assert len((await worked(api, ada))["data_content"]) == 1


async def test_distribution_route_returns_404_for_job_of_other_kind(ada: httpx2.AsyncClient) -> None:
    job = (await ada.post("/v1/jobs", json={"kind": "echo", "inputs": [1]})).json()
    assert (await ada.get(f"/v1/distributions/{job['id']}")).status_code == 404
    refused = await ada.post("/v1/jobs", json={"kind": "tidemill.distribute", "inputs": [SENT]})
    assert refused.status_code == 422


async def test_dataset_list_shows_only_datasets_readable_by_role(
    ada: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    shown = (await ada.get("/v1/datasets")).json()["datasets"]
    assert [one["name"] for one in shown] == ["letters"]
    assert shown[0]["fields"][2] == {"name": "edition", "type": "integer", "required": False}
    assert [one["name"] for one in (await root.get("/v1/datasets")).json()["datasets"]] == ["letters", "hidden"]


@pytest.mark.parametrize("most", [2_000, pytest.param(100_000, marks=pytest.mark.full)])
async def test_distribution_accepts_max_inputs_and_rejects_one_more(
    make_api: Callable[..., Awaitable[Api]], tmp_path: Path, most: int
) -> None:
    api = await stocked(make_api, tmp_path, max_distribution_inputs=most)
    ada = await api.user("ada")
    inputs = [SENT | {"edition": n} for n in range(most + 1)]
    answer = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": inputs})
    assert answer.status_code == 422
    assert f"at most {most} entries" in answer.json()["detail"]
    answer = await ada.post("/v1/distributions", json={"dataset": "letters", "inputs": inputs[:-1]})
    assert (answer.status_code, answer.json()["total"]) == (202, most)
    page = (await ada.get(f"/v1/distributions/{answer.json()['job_id']}")).json()
    assert len(page["data_content"]) == 1_000
    assert page["next_page"]
