"""Routes that pause, resume, cancel, delete, reprocess and redrive jobs of the caller."""

from typing import Any
from uuid import UUID

import httpx2
import pytest

from support import assert_sound, rows
from support.api import Api
from tidemill import Item, Mill, NotFound
from tidemill.config import Settings
from tidemill.core.errors import Conflict, UnknownJob
from tidemill.jobs import reprocessing
from tidemill.store import operation_records, workers
from tidemill.store.reprocess_items import ReprocessSelection
from tidemill.testing import drain

STRANGE = "019a8b7c-1d2e-7f00-8000-123456789abc"
REDRIVE = "/v1/dead-letters/redrive"


async def submitted(who: httpx2.AsyncClient, inputs: list[Any], **more: Any) -> str:
    answer = await who.post("/v1/jobs", json={"kind": "echo", "inputs": inputs} | more)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


async def test_job_pause_is_idempotent_and_resume_returns_it_to_pending(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1, 2])
    paused = await ada.post(f"/v1/jobs/{job}/pause")
    assert (paused.status_code, paused.json()["status"]) == (200, "paused")
    assert (await ada.post(f"/v1/jobs/{job}/pause")).status_code == 200, "a repeated pause succeeds"
    assert (await ada.post(f"/v1/jobs/{job}/resume")).json()["status"] == "pending"


async def test_job_resume_is_rejected_with_status_when_job_is_not_paused(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    answer = await ada.post(f"/v1/jobs/{job}/resume")
    assert answer.status_code == 409
    assert "is pending and cannot be resumed" in answer.json()["detail"]


async def test_job_cancel_cancels_all_items_and_second_cancel_conflicts(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1, 2, 3])
    answer = await ada.post(f"/v1/jobs/{job}/cancel")
    assert answer.json()["status"] == "cancelled"
    assert answer.json()["counts"]["cancelled"] == 3
    second = await ada.post(f"/v1/jobs/{job}/cancel")
    assert second.status_code == 409
    assert "is cancelled" in second.json()["detail"]
    await assert_sound(api.db)


async def test_job_delete_makes_job_return_404(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    assert (await ada.delete(f"/v1/jobs/{job}")).status_code == 204
    assert (await ada.get(f"/v1/jobs/{job}")).status_code == 404
    assert (await ada.delete(f"/v1/jobs/{job}")).status_code == 404


async def test_job_lookup_by_key_returns_same_job_as_by_id(ada: httpx2.AsyncClient) -> None:
    job = (await ada.get(f"/v1/jobs/{await submitted(ada, [1])}")).json()
    assert (await ada.get(f"/v1/jobs/{job['key']}")).json()["id"] == job["id"]


@pytest.mark.parametrize("name", ["nonsense", "J20261115_999999", STRANGE, "0", "019", "%00", "a" * 60])
async def test_job_lookup_returns_404_for_unknown_or_malformed_name(ada: httpx2.AsyncClient, name: str) -> None:
    assert (await ada.get(f"/v1/jobs/{name}")).status_code == 404


async def test_job_lookup_by_other_user_does_not_reveal_existence(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [1])
    answers = [await bob.get(f"/v1/jobs/{name}") for name in (job, job[:8], STRANGE)]
    assert {answer.status_code for answer in answers} == {404}
    details = [answer.json()["detail"].split('"')[0] for answer in answers]
    assert len(set(details)) == 1, "a job of another user is reported as unknown"


async def statuses(api: Api, job: str) -> list[str]:
    found = await rows(api.db, "SELECT status FROM tidemill.item_status WHERE job_id = %s ORDER BY seq", job)
    return [row[0] for row in found]


async def failing(api: Api, toy: Mill, who: httpx2.AsyncClient, n: int = 3) -> str:
    job = await submitted(who, [{"fail": f"code {seq % 2}"} for seq in range(n)] + [1])
    await drain(toy, db=api.db)
    return job


async def with_permanent_failure(api: Api, toy: Mill, who: httpx2.AsyncClient) -> str:
    """Create three failures that used up their attempts, and make the error of the second one permanent."""
    job = await failing(api, toy, who)
    permanent = """UPDATE tidemill.outcome SET error = jsonb_set(error::jsonb, '{retryable}', 'false')
        WHERE job_id = %s AND seq = 1"""
    await rows(api.db, permanent, job)
    return job


async def test_reprocess_requeues_failed_items_and_returns_operation(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    answer = await ada.post(f"/v1/jobs/{job}/reprocess", json={})
    assert answer.status_code == 200
    operation = answer.json()
    assert (operation["state"], operation["items"], operation["job_id"]) == ("done", 3, job)
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["pending"] == 3
    assert answer.headers["location"] == f"/v1/operations/{operation['id']}"
    assert (await ada.get(answer.headers["location"])).json() == operation
    await assert_sound(api.db)


async def test_reprocess_accepts_camel_case_fields_and_status_aliases(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    asked = {"scope": "items", "itemIds": [f"{job}:0", f"{job}:3"], "statuses": ["ERROR", "NOT_FOUND"]}
    assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=asked)).json()["items"] == 1
    assert await statuses(api, job) == ["pending", "failed", "failed", "done"]


async def test_reprocess_without_reset_requeues_retryable_failures_and_leaves_permanent_ones(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await with_permanent_failure(api, toy, ada)
    kept = await ada.post(f"/v1/jobs/{job}/reprocess", json={"reset_attempts": False})
    assert kept.json()["items"] == 2
    assert await statuses(api, job) == ["pending", "failed", "pending", "done"]
    assert await rows(api.db, "SELECT seq, attempts FROM tidemill.outcome WHERE status = 'pending' ORDER BY seq") == [
        (0, 2),
        (2, 2),
    ]


@pytest.mark.parametrize(
    "asked",
    [
        {"scope": "items"},
        {"item_ids": []},
        {"scope": "items", "item_ids": ["nonsense"]},
        {"scope": "items", "item_ids": [f"{STRANGE}:0"]},
        {"statuses": ["pending"]},
        {"statuses": ["sad"]},
        {"what": 1},
        {"scope": "items", "item_ids": [f"{STRANGE}:99999999999999999999"]},
    ],
)
async def test_reprocess_with_invalid_selection_is_rejected_with_422(
    ada: httpx2.AsyncClient, asked: dict[str, Any]
) -> None:
    job = await submitted(ada, [1])
    assert (await ada.post(f"/v1/jobs/{job}/reprocess", json=asked)).status_code == 422


async def test_reprocess_operation_finishes_in_background_after_caller_times_out(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = UUID(await failing(api, toy, ada, 5))
    operation = await reprocessing.reprocess_items(api.db, job, ReprocessSelection(), timeout_s=0)
    assert (operation.state, operation.items) == ("running", 0)
    step = await api.db.run(operation_records.run_operation_step)
    assert step is not None
    assert (step.operation_id, step.items) == (operation.id, 5)
    assert await api.db.run(operation_records.run_operation_step) is None
    found = await api.db.run(operation_records.get_operation, operation.id)
    assert (found.state, found.error, found.items) == ("done", None, 5)


async def test_reprocess_of_purged_job_conflicts_and_records_failed_operation(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    await rows(api.db, "UPDATE tidemill.job SET purged_at = now()")
    refused = await ada.post(f"/v1/jobs/{job}/reprocess", json={})
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "Cannot reprocess the job: its rows were purged",
    )
    [told] = (await ada.get("/v1/operations")).json()["operations"]
    assert (told["state"], told["items"]) == ("failed", 0)


async def test_reprocess_operation_fails_with_reason_when_job_is_deleted(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    operation = await reprocessing.reprocess_items(api.db, UUID(job), ReprocessSelection(), timeout_s=0)
    await ada.delete(f"/v1/jobs/{job}")
    with pytest.raises(UnknownJob):
        await reprocessing.run_operation_until_end_or_timeout(api.db, operation.id)
    operation = await api.db.run(operation_records.get_operation, operation.id)
    assert operation.state == "failed"
    assert "Unknown job" in str(operation.error)
    with pytest.raises(Conflict, match="Unknown job"):
        await reprocessing.run_operation_until_end_or_timeout(api.db, operation.id)


async def dead(api: Api) -> int:
    return int((await rows(api.db, "SELECT count(*) FROM tidemill.outcome WHERE status = 'failed'"))[0][0])


async def test_redrive_all_matching_requeues_own_dead_letters_except_excluded(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    first, second = await failing(api, toy, ada), await failing(api, toy, ada)
    await failing(api, toy, bob)
    asked = {"all_matching": True, "except": [f"{second}:1"]}
    operation = (await ada.post(REDRIVE, json=asked)).json()
    assert (operation["state"], operation["items"], operation["verb"]) == ("done", 5, "redrive")
    assert await statuses(api, first) == ["pending", "pending", "pending", "done"]
    assert (await statuses(api, second))[1] == "failed"
    assert await dead(api) == 1 + 3
    await assert_sound(api.db)


async def test_redrive_by_item_ids_requeues_only_failed_items_named(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    first, second = await failing(api, toy, ada), await failing(api, toy, ada)
    asked = {"item_ids": [f"{first}:0", f"{second}:2", f"{second}:3"]}
    assert (await ada.post(REDRIVE, json=asked)).json()["items"] == 2
    assert await dead(api) == 4


async def test_redrive_skips_other_users_dead_letters_unless_admin_requests_all(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    asked: dict[str, Any] = {"item_ids": [f"{job}:0"]}
    assert (await bob.post(REDRIVE, json=asked)).json()["items"] == 0
    assert (await bob.post(REDRIVE, json={"all_matching": True, "user_id": "all"})).status_code == 403
    assert (await root.post(REDRIVE, json={"all_matching": True})).json()["items"] == 0
    everybody = {"all_matching": True, "user_id": "all", "filter": {"error_codes": ["exhausted"]}}
    assert (await root.post(REDRIVE, json=everybody)).json()["items"] == 3


async def test_redrive_requeues_only_items_matching_filter(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    await failing(api, toy, ada)
    for narrow in (
        {"kind": "other"},
        {"error_codes": ["x"]},
        {"job_id": STRANGE},
        {"to": "2020-01-01T00:00:00Z"},
    ):
        answer = await ada.post(REDRIVE, json={"all_matching": True, "filter": narrow})
        assert answer.json()["items"] == 0, narrow
    wide = {"kind": "echo", "from": "2020-01-01T00:00:00Z"}
    answer = await ada.post(REDRIVE, json={"all_matching": True, "filter": wide})
    assert answer.json()["items"] == 3


async def test_operation_list_is_paged_newest_first_and_limited_to_owner(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    made = [(await ada.post(f"/v1/jobs/{job}/reprocess", json={})).json()["id"] for _ in range(3)]
    page = (await ada.get("/v1/operations?pageSize=2")).json()
    assert [one["id"] for one in page["operations"]] == made[:0:-1]
    rest = (await ada.get("/v1/operations", params={"page_size": 2, "after": page["next_page"]})).json()
    assert [one["id"] for one in rest["operations"]] == made[:1]
    assert "next_page" not in rest
    assert "next_page" not in (await ada.get("/v1/operations?pageSize=3")).json()
    assert (await bob.get("/v1/operations")).json() == {"operations": []}
    assert (await bob.get(f"/v1/operations/{made[0]}")).status_code == 404
    assert len((await root.get("/v1/operations?user_id=all")).json()["operations"]) == 3
    assert len((await root.get("/v1/operations?user_id=ada")).json()["operations"]) == 3


@pytest.mark.parametrize("after", ["x", "bnVsbA", "WzFd", "W10", "eyJhIjoxfQ", "W251bGxd", "W05hTl0", "é", "x" * 400])
async def test_operation_list_rejects_invalid_cursor_with_422(ada: httpx2.AsyncClient, after: str) -> None:
    assert (await ada.get("/v1/operations", params={"after": after})).status_code == 422


async def test_broken_operation_fails_without_blocking_later_operations(
    api: Api, ada: httpx2.AsyncClient, toy: Mill
) -> None:
    job = UUID(await failing(api, toy, ada))
    broken = await api.db.run(
        operation_records.add_operation, "reprocess", {"statuses": ["nonsense"]}, user_id=0, job_id=job
    )
    good = await reprocessing.reprocess_items(api.db, job, ReprocessSelection(), timeout_s=0)
    while await api.db.run(operation_records.run_operation_step) is not None:
        pass
    states = [(await api.db.run(operation_records.get_operation, one)).state for one in (broken, good.id)]
    assert states == ["failed", "done"]


async def test_reprocess_without_reset_gives_items_not_found_one_more_attempt(
    api: Api, ada: httpx2.AsyncClient, settings: Settings
) -> None:
    mill = Mill(settings)

    @mill.handler("seek", max_attempts=5, max_attempts_not_found=2, backoff=0.01, not_found_delay=0.01)
    async def seek(_item: Item) -> Any:
        return NotFound()

    await api.db.run(workers.register_kinds, mill.registry.create_all())
    job = (await ada.post("/v1/jobs", json={"kind": "seek", "inputs": [1, 2]})).json()["id"]
    await drain(mill, db=api.db)
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["not_found"] == 2
    kept = await ada.post(f"/v1/jobs/{job}/reprocess", json={"reset_attempts": False})
    assert (kept.status_code, kept.json()["items"]) == (200, 2)
    await drain(mill, db=api.db)
    assert await rows(api.db, "SELECT status, attempts FROM tidemill.outcome") == [("not_found", 3)] * 2


async def test_redrive_without_reset_leaves_permanent_failures(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    await with_permanent_failure(api, toy, ada)
    kept = await ada.post(REDRIVE, json={"all_matching": True, "reset_attempts": False})
    assert kept.json()["items"] == 2
    assert (await ada.post(REDRIVE, json={"all_matching": True})).json()["items"] == 1
