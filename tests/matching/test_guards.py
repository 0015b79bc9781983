"""What is not asked at all, and in which words the rest is."""

import json

import pytest

from matching.scenes import Scene
from matching.services import Reply, Request, Scripted, echo, named, told
from matching.test_faults import NAMES, assert_own
from support import rows
from tidemill.domain.errors import InvalidSettings


async def test_a_private_address_needs_its_operators_word(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, allow_private=False)
    (row,) = await scene.match(["Ada"])
    assert (row.status, row.error["code"]) == ("failed", "address_refused")
    assert service.requests == []


async def test_a_cancelled_job_asks_nobody_any_more(scene: Scene, service: Scripted) -> None:
    """Twenty rows, one request at a time: after the second the job is cancelled."""
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


async def test_a_deleted_job_asks_nobody_any_more(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, batch=1, concurrency=1)

    async def answer(request: Request) -> Reply:
        await scene.delete(job_id)
        return echo(request)

    service.answer = answer
    job_id = await scene.submit([{"name": name} for name in NAMES])
    await scene.drain()
    assert len(service.requests) == 1


async def test_the_newer_protocol_is_spoken_if_the_service_does(scene: Scene, service: Scripted) -> None:
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


async def test_a_permit_is_of_a_request_and_a_refusal_is_told_to_its_limiter(scene: Scene, service: Scripted) -> None:
    scene.limiters = '[limiters.names]\nrate = "100/s"'
    scene.declare("names", service.url, limit="names")
    service.answer = lambda request: (
        Reply(429, b"", {"Retry-After": "1"}) if len(service.requests) == 1 else echo(request)
    )
    assert_own(await scene.match(NAMES))
    assert len(service.requests) == 3
    query = "SELECT taken, refused, blocked_until IS NOT NULL FROM tidemill.limiter WHERE name = 'names'"
    assert await rows(scene.db, query) == [(3, 1, True)]


async def test_a_service_whose_limiter_is_not_declared_stops_the_start(scene: Scene, service: Scripted) -> None:
    scene.limiters = '[limiters.names]\nrate = "100/s"'
    scene.declare("names", service.url, limit="nmaes")
    with pytest.raises(
        InvalidSettings, match=r"service 'names' has limit='nmaes', which is not declared; did you mean"
    ):
        await scene.match(["Ada"])
