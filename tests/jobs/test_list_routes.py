"""Lists over HTTP: every item once, only jobs of the caller, and validated cursors."""

import asyncio
import base64
import csv
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import openpyxl
import pytest

from jobs.test_job_control_routes import failing, submitted
from support import rows
from support.api import Api
from tidemill import Mill
from tidemill.core.principal import Role
from tidemill.core.result_grid import GridColumns, build_row_cells
from tidemill.jobs.queries import make_pending_count_cache
from tidemill.store import workers
from tidemill.testing import drain


async def pages(who: httpx2.AsyncClient, path: str, name: str, **params: Any) -> AsyncIterator[dict[str, Any]]:
    """Return all rows of a list, page by page."""
    after: dict[str, Any] = {}
    while True:
        answer = await who.get(path, params=params | after)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        for row in page[name]:
            yield row
        if "next_page" not in page:
            return
        after = {"after": page["next_page"]}


async def walk(who: httpx2.AsyncClient, path: str, name: str, **params: Any) -> list[dict[str, Any]]:
    return [row async for row in pages(who, path, name, **params)]


async def test_item_list_returns_each_matching_item_once_for_every_filter(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [{"fail": "x"} if n % 3 == 0 else {"title": f"t{n}", "n": n} for n in range(50)])
    path = f"/v1/jobs/{job}/items"
    assert [item["seq"] for item in await walk(ada, path, "items", pageSize=7)] == list(range(50))
    pending = await walk(ada, path, "items", statuses="PENDING,PROCESSING", page_size=7)
    assert sorted(item["seq"] for item in pending) == list(range(50))
    await drain(toy, db=api.db)
    failed = await walk(ada, path, "items", statuses="ERROR", page_size=5)
    assert sorted(item["seq"] for item in failed) == list(range(0, 50, 3))
    assert {item["error"]["code"] for item in failed} == {"exhausted"}
    done = await walk(ada, path, "items", statuses="done", page_size=5)
    assert [item["seq"] for item in done] == [n for n in range(50) if n % 3]
    both = await walk(ada, path, "items", statuses=["done", "failed"], page_size=9)
    assert len(both) == 50
    assert await walk(ada, path, "items", statuses="failed", error_codes="nothing") == []
    assert [item["seq"] for item in await walk(ada, path, "items", seq=45)] == list(range(45, 50))


async def test_item_list_is_sorted_by_seq_or_by_time_of_last_change(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [{"fail": "x"} for _ in range(6)])
    path = f"/v1/jobs/{job}/items"
    await drain(toy, db=api.db)
    moved = "UPDATE tidemill.outcome SET updated_at = updated_at - seq * interval '1 s' WHERE job_id = %s"
    await rows(api.db, moved, job)
    for sort, expected in (("seq", range(6)), ("updated_at", range(5, -1, -1))):
        found = await walk(ada, path, "items", statuses="failed", sort=sort, page_size=2)
        assert [item["seq"] for item in found] == list(expected), sort
    assert [item["seq"] for item in await walk(ada, path, "items", sort="seq", page_size=4)] == list(range(6))
    after = (await ada.get(path, params={"statuses": "failed", "page_size": 1, "sort": "seq"})).json()["next_page"]
    other = await ada.get(path, params={"statuses": "failed", "sort": "updated_at", "after": after})
    assert other.status_code == 422, "the cursor belongs to another order"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("sort=updated_at", "Cannot sort this list"),
        ("sort=updated_at&statuses=done,failed", "Cannot sort this list"),
        ("sort=updated_at&statuses=failed&key=a", "Cannot sort this list"),
        ("sort=updated_at&statuses=failed&seq=1", "Cannot sort this list"),
        ("sort=seq&error_codes=odd", "Cannot sort failures"),
        ("sort=-seq", "seq"),
        ("sort=duration_ms", "updated_at"),
    ],
)
async def test_item_list_rejects_sort_that_has_no_index_with_reason(
    ada: httpx2.AsyncClient, query: str, reason: str
) -> None:
    job = await submitted(ada, [1])
    answer = await ada.get(f"/v1/jobs/{job}/items?{query}")
    assert answer.status_code == 422
    assert reason in answer.text


async def test_item_list_shows_truncated_input_summary_and_detail_full_input(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [{"title": "T" * 500, "brand": "B", "sku": "S", "secret": "x" * 1_000}])
    item = (await ada.get(f"/v1/jobs/{job}/items")).json()["items"][0]
    assert "input" not in item
    assert "x" * 100 not in json.dumps(item)
    assert item["input_summary"]["brand"] == "B"
    assert len(item["input_summary"]["title"]) <= 80
    whole = (await ada.get(f"/v1/jobs/{job}/items/0")).json()
    assert whole["input"]["secret"] == "x" * 1_000
    assert (whole["id"], whole["status"]) == (f"{job}:0", "pending")


async def test_failed_item_is_fixed_and_reprocessed_with_history(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    path = f"/v1/jobs/{job}/items/0"
    assert (await bob.patch(path, json={"input": 1})).status_code == 404
    assert (await ada.patch(path, json={"input": {"better": 1}})).json() == {"rev": 1}
    assert (await ada.patch(path, json={"input": {"better": 2}})).json() == {"rev": 2}
    asked = {"scope": "items", "item_ids": [f"{job}:0"]}
    await ada.post(f"/v1/jobs/{job}/reprocess", json=asked)
    waiting = await ada.patch(path, json={"input": 1})
    assert waiting.status_code == 409
    assert "pending" in waiting.json()["detail"]
    await drain(toy, db=api.db)
    item = (await ada.get(path)).json()
    assert (item["status"], item["result"], item["original"]) == ("done", {"better": 2}, {"fail": "code 0"})
    assert [fix["rev"] for fix in item["fixes"]] == [1, 2]
    assert {fix["by"] for fix in item["fixes"]} == {api.ids["ada"]}
    verbs = [deed["verb"] for deed in await walk(ada, f"/v1/jobs/{job}/activity", "activity", page_size=1)]
    assert verbs == ["reprocess", "fix", "fix"]


@pytest.mark.parametrize("path", ["items/99", "items/99999999999999999999", "items/-1", "items/x"])
async def test_item_get_and_fix_return_404_or_422_for_unknown_item(ada: httpx2.AsyncClient, path: str) -> None:
    job = await submitted(ada, [1])
    assert (await ada.get(f"/v1/jobs/{job}/{path}")).status_code in (404, 422)
    assert (await ada.patch(f"/v1/jobs/{job}/{path}", json={"input": 1})).status_code in (404, 422)


BAD = [
    "statuses=sad",
    "page_size=0",
    "page_size=501",
    "page_size=x",
    "after=x",
    "after=" + base64.urlsafe_b64encode(b'["seq","00000000",NaN]').decode(),
    "after=" + base64.urlsafe_b64encode(b'["open","0",1e99,{},"x"]').decode(),
    "after=" + base64.urlsafe_b64encode(b"[" * 300).decode(),
    "seq=-1",
    "seq=9999999999999999999999",
    "what=1",
]


@pytest.mark.parametrize("query", BAD)
async def test_item_list_names_invalid_query_parameter(ada: httpx2.AsyncClient, query: str) -> None:
    job = await submitted(ada, [1])
    answer = await ada.get(f"/v1/jobs/{job}/items?{query}")
    assert answer.status_code == 422, answer.text
    if not query.startswith("after"):
        assert query.split("=", maxsplit=1)[0] in {fault["parameter"] for fault in answer.json()["errors"]}


async def test_list_cursor_is_rejected_by_other_job_filter_or_list(ada: httpx2.AsyncClient) -> None:
    job, other = await submitted(ada, [1, 2, 3]), await submitted(ada, [1, 2, 3])
    after = (await ada.get(f"/v1/jobs/{job}/items?page_size=1")).json()["next_page"]
    assert (await ada.get(f"/v1/jobs/{job}/items?page_size=1&after={after}")).status_code == 200
    assert (await ada.get(f"/v1/jobs/{other}/items?page_size=1&after={after}")).status_code == 422
    assert (await ada.get(f"/v1/jobs/{job}/items?statuses=pending&after={after}")).status_code == 422
    assert (await ada.get(f"/v1/jobs?after={after}")).status_code == 422


async def test_job_list_is_newest_first_filtered_and_limited_to_owner(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    made = [await submitted(ada, [1]) for _ in range(5)]
    foreign = await submitted(bob, [1])
    await ada.post(f"/v1/jobs/{made[0]}/cancel")
    await ada.post(f"/v1/jobs/{made[1]}/pause")
    assert [job["id"] for job in await walk(ada, "/v1/jobs", "jobs", page_size=2)] == made[::-1]
    assert [job["id"] for job in await walk(ada, "/v1/jobs", "jobs", statuses="cancelled,paused")] == made[1::-1]
    assert [job["id"] for job in await walk(ada, "/v1/jobs", "jobs", statuses="PENDING")] == made[:1:-1]
    assert await walk(ada, "/v1/jobs", "jobs", kind="other") == []
    assert [job["id"] for job in await walk(ada, "/v1/jobs", "jobs", q=made[2][:18])] != []
    assert (await ada.get("/v1/jobs?user_id=all")).status_code == 403
    assert {job["id"] for job in await walk(root, "/v1/jobs", "jobs", user_id="all")} == {*made, foreign}
    assert [job["id"] for job in await walk(root, "/v1/jobs", "jobs", user_id="bob")] == [foreign]
    assert await walk(root, "/v1/jobs", "jobs") == []


async def test_job_detail_shows_counts_rates_errors_and_links(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = (await ada.get(f"/v1/jobs/{await failing(api, toy, ada)}")).json()
    counts = job["counts"]
    assert counts["total"] == sum(value for name, value in counts.items() if name != "total") == 4
    assert job["errors"] == {"exhausted": 3}
    assert job["rates"]["average_per_s"] > 0
    assert (job["rates"]["eta_s"], job["rates"]["why"]) == (None, "closed")
    assert job["retried"] == 3
    assert (job["ip_address"], job["columns"], job["adaptive"]) == ("127.0.0.1", ["result"], [])
    for name, link in job["links"].items():
        if name in ("self", "items", "batches", "activity"):
            assert (await ada.get(link)).status_code == 200
    chart = (await ada.get(f"/v1/jobs/{job['id']}/chart")).json()
    assert chart[-1]["settled"] == 4


async def test_job_detail_shows_ingest_chunk_rows_of_eligible_workers(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    child = {"child": 0, "kinds": {}, "ingest": {"chunk_rows": 256}, "database": {}, "pressure": {}}
    await api.db.run(workers.register_worker, "w1", "host", 1, {"kinds": ["echo"], "adaptive": [child]})
    await api.db.run(workers.register_worker, "w2", "host", 1, {"kinds": ["other"], "adaptive": [child]})
    headers = {"content-type": "text/csv"}
    job = (await ada.post("/v1/jobs?kind=echo", content=b"a\n1\n", headers=headers)).json()["id"]
    shown = (await ada.get(f"/v1/jobs/{job}")).json()["adaptive"]
    assert [(one["worker"], one["child"], one["chunk_rows"]) for one in shown] == [("w1", 0, 256)]
    await drain(toy, db=api.db)
    await api.db.run(workers.register_worker, "w1", "host", 1, {"kinds": ["echo"], "adaptive": [child]})
    assert (await ada.get(f"/v1/jobs/{job}")).json()["adaptive"] == [], (
        "a worker that has not run the kind is not listed"
    )


async def test_batch_list_shows_state_tallies_and_duration(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await failing(api, toy, ada)
    found = await walk(ada, f"/v1/jobs/{job}/batches", "batches", page_size=1)
    assert len(found) == 2
    assert {batch["state"] for batch in found} == {"done"}
    assert sum(batch["tallies"]["failed"] for batch in found) == 3
    assert all(batch["duration_ms"] >= 0 for batch in found)


async def test_pending_list_shows_own_items_of_all_jobs_with_reason(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    first, second = await submitted(ada, [1, 2]), await submitted(ada, [3])
    await submitted(bob, [4])
    await ada.post(f"/v1/jobs/{second}/pause")
    found = await walk(ada, "/v1/pending", "items", pageSize=1)
    assert [item["id"] for item in found] == [f"{first}:0", f"{first}:1", f"{second}:0"]
    assert found[2]["why"] == "Paused"
    assert found[0]["job_key"].startswith("J")
    narrow = await walk(ada, "/v1/pending", "items", jobId=second)
    assert [item["id"] for item in narrow] == [f"{second}:0"]
    assert await walk(ada, "/v1/pending", "items", job_type="other") == []
    assert await walk(ada, "/v1/pending", "items", to="2020-01-01T00:00:00Z") == []
    assert len(await walk(ada, "/v1/pending", "items", **{"from": "2020-01-01T00:00:00Z"})) == 3
    assert len(await walk(root, "/v1/pending", "items", userId="all")) == 4
    assert (await ada.get("/v1/pending?userId=all")).status_code == 403
    assert (await bob.get(f"/v1/pending?job_id={first}")).status_code == 404
    assert (await ada.get("/v1/pending?statuses=done")).status_code == 422


async def test_pending_count_is_cached_between_requests(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(ada, [1, 2])
    assert (await ada.get("/v1/pending")).json()["pending_count"] == 2
    await submitted(ada, [3])
    assert (await ada.get("/v1/pending")).json()["pending_count"] == 2, "the sum is cached"
    monkeypatch.setattr(api.app.state.runtime.get(make_pending_count_cache), "_cache_s", 0.0)
    assert (await ada.get("/v1/pending")).json()["pending_count"] == 3


async def test_pending_count_matches_status_and_kind_filter_or_is_omitted(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [1, 2])
    await rows(api.db, "UPDATE tidemill.batch SET retrying = true")
    await submitted(ada, [3])

    async def told(query: str) -> Any:
        return (await ada.get(f"/v1/pending?{query}")).json().get("pending_count")

    assert await told("") == 1
    assert await told("statuses=retry_wait") == 2
    assert await told("statuses=pending,retry_wait&job_type=echo") == 3
    assert await told("statuses=pending,retry_wait&job_type=other") == 0
    assert await told(f"job_id={job}") is None
    assert await told("from=2020-01-01T00:00:00Z") is None


async def test_job_id_filter_accepts_job_key_in_pending_and_dead_letters(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    await submitted(ada, [{"fail": 1}])
    job = await submitted(ada, [{"fail": 1}, {"fail": 2}])
    key = (await ada.get(f"/v1/jobs/{job}")).json()["key"]
    assert len((await ada.get(f"/v1/pending?job_id={key}")).json()["items"]) == 2
    await drain(toy, db=api.db)
    for name in (job, key, key.lower()):
        assert len((await ada.get(f"/v1/dead-letters?job_id={name}")).json()["items"]) == 2
        assert [cause["count"] for cause in (await ada.get(f"/v1/dead-letters/causes?job_id={name}")).json()] == [2]
    for path in ("/v1/pending", "/v1/dead-letters", "/v1/dead-letters/causes"):
        assert (await bob.get(f"{path}?job_id={key}")).status_code == 404, "it belongs to another user"
        assert (await ada.get(f"{path}?job_id={job[:8]}")).status_code == 422, "id prefixes are not accepted"
    asked = {"all_matching": True, "filter": {"job_id": key}}
    assert (await bob.post("/v1/dead-letters/redrive", json=asked)).status_code == 404
    assert (await ada.post("/v1/dead-letters/redrive", json=asked)).json()["items"] == 2


async def test_pending_list_across_jobs_is_404_when_dashboard_is_disabled(make_api: Callable[..., Any]) -> None:
    api = await make_api(pending_dashboard=False)
    ada = await api.user("ada")
    assert (await ada.get("/v1/pending")).status_code == 404
    job = await submitted(ada, [1])
    assert (await ada.get(f"/v1/jobs/{job}/items?statuses=pending")).status_code == 200
    assert len((await ada.get(f"/v1/pending?job_id={job}")).json()["items"]) == 1, (
        "the items of one job are always listed"
    )


async def test_dead_letter_list_shows_own_items_of_all_jobs_and_causes(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    await failing(api, toy, ada)
    await failing(api, toy, bob)
    await failing(api, toy, ada)
    found = await walk(ada, "/v1/dead-letters", "items", page_size=2)
    assert len(found) == len({item["id"] for item in found}) == 6
    assert len(await walk(root, "/v1/dead-letters", "items", user_id="all", page_size=2)) == 9
    causes = (await ada.get("/v1/dead-letters/causes")).json()
    assert [(cause["code"], cause["count"], cause["jobs"]) for cause in causes] == [("exhausted", 6, 2)]
    assert await walk(ada, "/v1/dead-letters", "items", error_codes="other") == []
    foreign = (await walk(bob, "/v1/dead-letters", "items"))[0]["job_id"]
    assert len(await walk(bob, "/v1/dead-letters", "items", job_id=foreign)) == 3
    assert (await ada.get(f"/v1/dead-letters?job_id={foreign}")).status_code == 404


RESULT_COLUMNS = "result.*,_row,_status,_error_code,_error"
HOSTILE = [
    {"a": 'quote " and, comma', "b": "line\nbreak"},
    {"b": "=1+1", "a": "007", "c": None},
    {"c": True, "d": 1.5, "a": ""},
    {"d": 12345678901234567890, "e": {"nested": [1, "é", None]}, "a": " spaces "},
    {"fail": "x"},
]


async def test_result_export_equals_item_list_cell_by_cell(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, HOSTILE)
    await drain(toy, db=api.db)
    page = (await ada.get(f"/v1/jobs/{job}/items")).json()
    columns = GridColumns(tuple(page["columns"]))
    grid = [build_row_cells(columns, item) for item in page["items"]]
    assert page["columns"] == ["a", "b", "c", "d", "e"], "in order of first occurrence"
    header = [f"result.{name}" for name in page["columns"]] + list(columns.meta_names)  # inputs have these names, too
    assert list(csv.reader(io.StringIO((await exported(api, ada, toy, job, "csv")).decode()))) == [
        header,
        *([as_text(value) for value in line] for line in grid),
    ]
    workbook = openpyxl.load_workbook(io.BytesIO(await exported(api, ada, toy, job, "xlsx")))
    sheet = [[cell.value for cell in row] for row in workbook.active.iter_rows()]
    assert sheet == [header, *grid]
    lines = (await exported(api, ada, toy, job, "ndjson")).decode().splitlines()
    assert [[json.loads(line)[name] for name in columns.meta_names] for line in lines] == [line[-4:] for line in grid]


def as_text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else str(value)


async def exported(api: Api, who: httpx2.AsyncClient, toy: Mill, job: str, format_: str) -> bytes:
    answer = await who.post(f"/v1/jobs/{job}/export?format={format_}&columns={RESULT_COLUMNS}")
    assert answer.status_code == 202, answer.text
    path = answer.headers["location"]
    early = await who.get(f"{path}/download")
    assert early.status_code == 409
    await drain(toy, db=api.db)
    assert (await who.get(path)).json()["status"] == "completed"
    file = await who.get(f"{path}/download")
    assert file.status_code == 200
    assert file.headers["content-disposition"].endswith(f'.{format_}"')
    assert int(file.headers["content-length"]) == len(file.content)
    again = await who.post(f"/v1/jobs/{job}/export?format={format_}&columns={RESULT_COLUMNS}")
    assert (again.status_code, again.headers["location"]) == (200, path), "the same file"
    return file.content


async def test_result_export_of_other_user_returns_404(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await submitted(ada, [1])
    assert (await bob.post(f"/v1/jobs/{job}/export?format=csv")).status_code == 404
    path = (await ada.post(f"/v1/jobs/{job}/export?format=csv")).headers["location"]
    assert (await bob.get(path)).status_code == 404
    assert (await bob.get(f"{path}/download")).status_code == 404
    assert (await ada.get(f"/v1/exports/{job}")).status_code == 404, "the job is not an export"
    assert (await ada.post(f"/v1/jobs/{job}/export?format=pdf")).status_code == 422


async def test_job_delete_during_processing_leaves_no_rows(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    made = [await submitted(ada, list(range(300))) for _ in range(4)]
    work = asyncio.create_task(drain(toy, db=api.db))
    answers = await asyncio.gather(*(ada.delete(f"/v1/jobs/{job}") for job in made))
    await work
    assert {answer.status_code for answer in answers} == {204}
    for table in ("job", "batch", "job_tally", "ingest", "activity", "job_sample"):
        assert await rows(api.db, f"SELECT count(*) FROM tidemill.{table}") == [(0,)], table
    assert {(await ada.get(f"/v1/jobs/{job}")).status_code for job in made} == {404}


async def test_job_counts_match_status_filter_of_job_list(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    done = await submitted(ada, [1])
    await drain(toy, db=api.db)
    waiting, paused = await submitted(ada, [1]), await submitted(ada, [1])
    await ada.post(f"/v1/jobs/{paused}/pause")
    found = (await ada.get("/v1/jobs/counts")).json()
    assert found["is_complete"]
    counts = {status: n for status, n in found["counts"].items() if n}
    assert counts == {"completed": 1, "pending": 1, "paused": 1}
    for status in counts:
        assert len((await ada.get("/v1/jobs", params={"statuses": status})).json()["jobs"]) == 1
    assert {done, waiting, paused} == {job["id"] for job in (await ada.get("/v1/jobs")).json()["jobs"]}


async def test_job_counts_are_marked_incomplete_over_open_job_limit(
    ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.store.job_records.JOB_COUNT_MAX_REFINED", 2)
    for complete in (True, True, False):
        await submitted(ada, [1])
        assert (await ada.get("/v1/jobs/counts")).json()["is_complete"] is complete


async def test_job_counts_exclude_other_users_jobs(api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    await submitted(ada, [1])
    assert sum((await bob.get("/v1/jobs/counts")).json()["counts"].values()) == 0
    assert (await bob.get("/v1/jobs/counts", params={"user_id": "all"})).status_code == 403
    root = await api.user("root", Role.ADMIN)
    everybody = (await root.get("/v1/jobs/counts", params={"user_id": "all"})).json()["counts"]
    assert everybody["pending"] == 1


async def test_item_list_includes_full_inputs_when_requested(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [{"sku": "A-1", "deep": {"n": 12345678901234567890}}])
    plain = (await ada.get(f"/v1/jobs/{job}/items")).json()
    assert (plain["columns_of"], plain["items"][0].get("input")) == ("input", None)
    whole = (await ada.get(f"/v1/jobs/{job}/items", params={"inputs": "true"})).json()
    assert whole["items"][0]["input"] == {"sku": "A-1", "deep": {"n": 12345678901234567890}}


async def test_reprocess_by_status_skips_excepted_items(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, [{"fail": "x"}] * 4)
    await drain(toy, db=api.db)
    asked = {"statuses": ["failed"], "except": [f"{job}:1", f"{job}:3"]}
    assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=asked)).json()["items"] == 2
    left = await walk(ada, f"/v1/jobs/{job}/items", "items", statuses="failed")
    assert sorted(item["seq"] for item in left) == [1, 3]
