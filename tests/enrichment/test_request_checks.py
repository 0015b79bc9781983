"""Requests that must not be sent, permits, the protocol version and unexpected errors."""

import asyncio
import json
from typing import Any

import pytest

from enrichment.scenes import Scene
from enrichment.test_service_faults import NAMES, assert_own
from support import assert_sound, rows, shift_clock
from support.reconciliation_services import Reply, Request, Scripted, echo, named, told
from tidemill.core.errors import InvalidRequest, InvalidSettings
from tidemill.dispatch import outbox
from tidemill.enrichment import reconciliation
from tidemill.enrichment.job_requests import MatchRequest
from tidemill.enrichment.service_client import ServiceClient
from tidemill.jobs.administration import check_health
from tidemill.store.item_lists import _fetch_job_briefs
from tidemill.store.progress_samples import read_queue_depth


async def test_private_address_is_refused_without_allow_private(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, allow_private=False)
    (row,) = await scene.match(["Ada"])
    assert (row.status, row.error["code"]) == ("failed", "address_refused")
    assert service.requests == []


async def test_cancelled_job_sends_no_more_requests(scene: Scene, service: Scripted) -> None:
    """Twenty rows, one request at a time. The job is cancelled during the second request."""
    scene.declare("names", service.url, batch=1, concurrency=1)

    async def answer(request: Request) -> Reply:
        if len(service.requests) == 2:
            await scene.cancel(job_id)
        return echo(request)

    service.answer = answer
    job_id = await scene.submit([{"name": name} for name in NAMES])
    await scene.drain()
    job = await scene.job(job_id)
    assert len(service.requests) == 2
    assert (job.status, job.counts.done, job.counts.cancelled) == ("cancelled", 2, 18)


async def test_deleted_job_sends_no_more_requests(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, batch=1, concurrency=1)

    async def answer(request: Request) -> Reply:
        await scene.delete(job_id)
        return echo(request)

    service.answer = answer
    job_id = await scene.submit([{"name": name} for name in NAMES])
    await scene.drain()
    assert len(service.requests) == 1


async def test_match_uses_protocol_1_0_when_service_declares_it(scene: Scene, service: Scripted) -> None:
    scene.declare("names", f"{service.url}/v1/", protocol="1.0")

    def answer(request: Request) -> Reply:
        queries = json.loads(request.body)["queries"]
        names = [query["conditions"][0]["propertyValue"] for query in queries]
        candidates = [named(name) | {"name": [{"str": name, "lang": "en"}]} for name in names]
        return told({"results": [{"candidates": [candidate]} for candidate in candidates]})

    service.answer = answer
    rows = await scene.run([{"name": name, "land": "DE"} for name in NAMES], type="Q5", properties={"P17": "land"})
    assert_own(rows)
    assert [row.result["name"] for row in rows] == NAMES
    (first, _) = service.requests
    assert (first.path, first.headers["content-type"]) == ("/v1/match", "application/json")
    assert json.loads(first.body)["queries"][0] == {
        "type": "Q5",
        "limit": 5,
        "conditions": [
            {"matchType": "name", "propertyValue": "name 0"},
            {"matchType": "property", "propertyId": "P17", "propertyValue": "DE", "required": False},
        ],
    }


async def test_permit_is_taken_per_request_and_throttling_blocks_limiter(scene: Scene, service: Scripted) -> None:
    scene.limiters = '[limiters.names]\nrate = "100/s"'
    scene.declare("names", service.url, limit="names")
    service.answer = lambda request: (
        Reply(429, b"", {"Retry-After": "1"}) if len(service.requests) == 1 else echo(request)
    )
    assert_own(await scene.match(NAMES))
    assert len(service.requests) == 3
    query = "SELECT taken, refused, blocked_until IS NOT NULL FROM tidemill.limiter WHERE name = 'names'"
    assert await rows(scene.db, query) == [(3, 1, True)]


async def test_blocked_limiter_pauses_its_jobs_without_raising_queue_age(scene: Scene, service: Scripted) -> None:
    """600 rows, throttled for an hour: rows without a request are unchanged and show the limiter as the reason."""
    scene.limiters = '[limiters.names]\nrate = "100/s"'
    scene.declare("names", service.url, limit="names")
    service.answer = lambda _: Reply(429, b"", {"Retry-After": "3600"})
    job_id = await scene.submit([{"name": f"name {n}"} for n in range(600)])
    await scene.drain(retries=False)
    requests, outcomes = len(service.requests), len(await scene.rows(job_id))
    assert requests <= outcomes <= 10 * requests < 600
    await scene.drain(retries=False)  # another process, which has not seen the throttling yet
    assert (len(service.requests), len(await scene.rows(job_id))) == (requests, outcomes)
    await assert_sound(scene.db, job_id)
    brief = (await scene.db.run(_fetch_job_briefs, {job_id}))[job_id]
    assert (brief["limiter"], brief["blocked_until"] is not None) == ("names", True)
    await shift_clock(scene.db, "30 minutes")
    # The job waits for the limiter, not for a worker, so its age must not raise an alarm.
    assert (await check_health(scene.db)).queue_age_s < 60
    assert (await scene.db.run(read_queue_depth)).oldest_s < 60
    await scene.db.run(outbox.register_broker_and_get_namespace, "redis")
    assert await scene.db.run(outbox.add_hints_for_stalled_jobs, 60) == []
    await shift_clock(scene.db, "3 hours")
    assert (await check_health(scene.db)).queue_age_s > 3600
    assert await scene.db.run(outbox.add_hints_for_stalled_jobs, 60) == [job_id]
    await rows(scene.db, "DELETE FROM tidemill.broker")


async def test_cancelled_job_takes_no_permits(scene: Scene, service: Scripted) -> None:
    scene.limiters = '[limiters.names]\nrate = "20/s"'
    scene.declare("names", service.url, limit="names", batch=1, concurrency=1)
    taken: list[int] = []

    async def answer(request: Request) -> Reply:
        taken.extend(n for (n,) in await rows(scene.db, "SELECT taken FROM tidemill.limiter"))
        await scene.cancel(job_id)
        return echo(request)

    service.answer = answer
    job_id = await scene.submit([{"name": name} for name in NAMES])
    await scene.drain()
    assert len(taken) == 1
    assert (await rows(scene.db, "SELECT taken FROM tidemill.limiter"))[0][0] <= taken[0]


async def test_unexpected_error_before_request_fails_waiting_rows(
    scene: Scene, service: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> int:
        raise RuntimeError("unexpected")

    monkeypatch.setattr(reconciliation, "get_or_fetch_query_batch_size", broken)
    job_id = await scene.submit([{"name": name} for name in NAMES])
    async with asyncio.timeout(10):
        await scene.drain(retries=False)
    assert {row.error["reason"] for row in await scene.rows(job_id)} == {"RuntimeError: unexpected"}


async def test_match_continues_when_manifest_request_fails(
    scene: Scene, service: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(client: ServiceClient, method: str, *args: Any, **options: Any) -> Any:
        if method == "GET":
            raise RuntimeError("unexpected")
        return await real(client, method, *args, **options)

    real = ServiceClient.send
    monkeypatch.setattr(ServiceClient, "send", broken)
    (scene.settings.home / "tidemill.toml").write_text(f'[services.names]\nurl = "{service.url}"\nallow_private = true')
    assert_own(await scene.match(NAMES))


async def test_score_beyond_number_range_fails_only_its_row(scene: Scene, service: Scripted) -> None:
    def answer(request: Request) -> Reply:
        names = {id_: query["query"] for id_, query in request.queries.items()}
        return told(
            {id_: {"result": [named(name, 10**400 if name == "name 3" else 100)]} for id_, name in names.items()}
        )

    service.answer = answer
    found = await scene.match(NAMES)
    assert [(row.status, row.attempts) for row in found if row.status == "done"] == [("done", 1)] * 19
    assert (found[3].status, found[3].error["code"]) == ("failed", "invalid_answer")


@pytest.mark.parametrize("name", ["threshold", "not_found_delay"])
@pytest.mark.parametrize("value", [10**400, -(10**400), float("nan"), True], ids=["large", "small", "nan", "true"])
def test_match_parameter_beyond_number_range_is_rejected(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=f"params.{name}: Input should be a (valid|finite) number"):
        MatchRequest.from_params({"service": "names", "query": "name", name: value})


async def test_service_with_undeclared_limiter_is_rejected_at_startup(scene: Scene, service: Scripted) -> None:
    scene.limiters = '[limiters.names]\nrate = "100/s"'
    scene.declare("names", service.url, limit="nmaes")
    with pytest.raises(InvalidSettings, match=r"uses limiter \"nmaes\", which is not declared; did you mean"):
        await scene.match(["Ada"])
