"""Run items now instead of after their retry delay, and throughput of all jobs."""

from typing import Any
from uuid import UUID

import httpx2

from jobs.test_job_control_routes import failing, submitted
from support import RETRY, assert_sound, rows, settle, take, verdict
from support.api import Api
from tidemill import Mill
from tidemill.store import workers


async def retrying(api: Api, ada: httpx2.AsyncClient, n: int = 5) -> str:
    """Create a job whose items had one attempt and wait an hour for the retry."""
    job = await submitted(ada, [{"sku": str(seq)} for seq in range(n)])
    lease = await take(api.db, UUID(job))
    await settle(api.db, lease, [verdict(seq, RETRY, delay=3600.0) for seq in range(n)])
    return job


async def hasten(client: httpx2.AsyncClient, *ids: str) -> Any:
    return (await client.post("/v1/pending/run-now", json={"item_ids": ids})).json()


async def due(api: Api, job: str) -> list[int]:
    query = "SELECT unnest(seqs) FROM tidemill.batch WHERE job_id = %s AND not_before <= tidemill.now()"
    return sorted(row[0] for row in await rows(api.db, query, UUID(job)))


async def test_run_now_makes_only_selected_retry_items_due(api: Api, ada: httpx2.AsyncClient) -> None:
    one, other = await retrying(api, ada), await retrying(api, ada)
    told = await hasten(ada, f"{one}:1", f"{one}:3", f"{one}:3", f"{other}:0")
    assert told == {"due": 3, "in_hand": 0, "others": 0}
    assert (await due(api, one), await due(api, other)) == ([1, 3], [0])
    await assert_sound(api.db)
    deeds = (await ada.get(f"/v1/jobs/{one}/activity")).json()["activity"]
    assert [deed["details"] for deed in deeds if deed["verb"] == "run_now"] == [{"items": 2}]


async def test_run_now_of_all_items_keeps_retry_batch_unsplit(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await retrying(api, ada, 3)
    assert (await hasten(ada, *(f"{job}:{seq}" for seq in range(3))))["due"] == 3
    assert await due(api, job) == [0, 1, 2]
    assert await rows(api.db, "SELECT count(*) FROM tidemill.batch WHERE state = 'ready'") == [(1,)]


async def test_run_now_reports_running_and_settled_items_without_changing_them(
    api: Api, ada: httpx2.AsyncClient
) -> None:
    job = await submitted(ada, [{"sku": str(seq)} for seq in range(4)])
    lease = await take(api.db, UUID(job))
    await settle(api.db, lease, [verdict(0)])
    assert await hasten(ada, *(f"{job}:{seq}" for seq in range(4))) == {"due": 0, "in_hand": 3, "others": 1}
    waiting = await submitted(ada, [1])
    assert await hasten(ada, f"{waiting}:0") == {"due": 0, "in_hand": 0, "others": 1}
    await assert_sound(api.db)


async def test_run_now_with_other_users_item_is_404_and_changes_nothing(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    job, mine = await retrying(api, ada), await retrying(api, bob)
    answer = await bob.post("/v1/pending/run-now", json={"item_ids": [f"{mine}:0", f"{job}:0"]})
    assert answer.status_code == 404
    assert (await due(api, job), await due(api, mine)) == ([], []), "no item is changed"
    assert (await hasten(root, f"{job}:0"))["due"] == 1


async def test_run_now_item_is_claimed_and_settled_normally(api: Api, ada: httpx2.AsyncClient) -> None:
    job = await retrying(api, ada, 4)
    await hasten(ada, f"{job}:2")
    lease = await take(api.db, UUID(job))
    assert list(lease.seqs or ()) == [2]
    await settle(api.db, lease, [verdict(2, attempts=2)])
    assert (await ada.get(f"/v1/jobs/{job}")).json()["counts"]["done"] == 1
    await assert_sound(api.db)


async def test_flow_sums_open_and_settled_items_by_user_scope(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient, toy: Mill
) -> None:
    await failing(api, toy, ada)
    await submitted(bob, [1, 2])
    flow = (await ada.get("/v1/flow")).json()
    assert flow["open"] == {"pending": 0, "processing": 0, "retry_wait": 0}
    assert len(flow["points"]) == 30
    settled = sum(point["settled"] for point in flow["points"])
    assert 0 < sum(point["failed"] for point in flow["points"]) <= settled
    everybody = (await root.get("/v1/flow?user_id=all")).json()
    assert everybody["open"]["pending"] == 2
    assert sum(point["settled"] for point in everybody["points"]) == settled
    assert sum(point["settled"] for point in (await bob.get("/v1/flow")).json()["points"]) == 0
    assert (await ada.get("/v1/flow?user_id=all")).status_code == 403


async def test_dead_letter_causes_can_be_filtered_by_job_and_kind(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, toy: Mill
) -> None:
    job = await failing(api, toy, ada)
    await failing(api, toy, ada)
    assert [one["count"] for one in (await ada.get(f"/v1/dead-letters/causes?job_id={job}")).json()] == [3]
    assert [one["count"] for one in (await ada.get("/v1/dead-letters/causes?kind=echo")).json()] == [6]
    assert (await ada.get("/v1/dead-letters/causes?kind=other")).json() == []
    assert (await bob.get(f"/v1/dead-letters/causes?job_id={job}")).status_code == 404


async def test_flow_names_kinds_without_worker_and_counts_paused_items(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    await rows(api.db, "DELETE FROM tidemill.worker")
    await submitted(ada, [1, 2, 3])
    paused = await submitted(ada, [1, 2])
    assert (await ada.post(f"/v1/jobs/{paused}/pause")).status_code == 200
    flow = (await ada.get("/v1/flow")).json()
    assert (flow["paused"], flow["unserved"]) == (2, [{"kind": "echo", "items": 3, "jobs": 1}])
    assert (await bob.get("/v1/flow")).json()["unserved"] == []
    await api.db.run(workers.register_worker, "w", "host", 1, {"kinds": ["echo"]})
    assert (await ada.get("/v1/flow")).json()["unserved"] == []
