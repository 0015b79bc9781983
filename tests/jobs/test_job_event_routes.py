"""Event streams of jobs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import sse

from jobs.test_job_control_routes import submitted
from support import eventually, rows, until
from support.api import Api
from tidemill import Mill
from tidemill.core.principal import LOCAL_USER_ID
from tidemill.jobs import job_event_routes, job_feed
from tidemill.jobs.job_feed import make_job_feed
from tidemill.store import users
from tidemill.testing import drain


class Stream:
    """Yield events as dicts of their fields."""

    def __init__(self, response: httpx2.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self, within: float = 15) -> dict[str, Any]:
        return await asyncio.wait_for(self._next(), within)

    async def comment(self) -> str:
        async for line in self._lines:
            if line.startswith(":"):
                return line
        raise EOFError

    async def _next(self) -> dict[str, Any]:
        event: dict[str, Any] = {}
        async for line in self._lines:
            name, _, value = line.partition(": ")
            if not line and event:
                return event | {"data": json.loads(event["data"])}
            if line and not line.startswith(":"):
                event[name] = value
        raise EOFError


@asynccontextmanager
async def stream(who: httpx2.AsyncClient, path: str, last: str | None = None) -> AsyncIterator[Stream]:
    headers = {} if last is None else {"Last-Event-ID": last}
    async with who.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def test_job_stream_sends_current_state_then_changes(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        first = await changes.next()
        assert (first["event"], first["data"]["id"], first["data"]["status"]) == ("job", job, "pending")
        await ada.post(f"/v1/jobs/{job}/pause")
        assert (await changes.next())["data"]["status"] == "paused"


async def test_job_stream_resumes_after_last_event_id(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        seen = (await changes.next())["id"]
    async with stream(ada, f"/v1/jobs/{job}/events", seen) as changes:
        with pytest.raises(TimeoutError):
            await changes.next(1.5)
    async with stream(ada, f"/v1/jobs/{job}/events", seen) as changes:
        await ada.post(f"/v1/jobs/{job}/pause")
        assert (await changes.next())["data"]["status"] == "paused"


async def test_idle_job_stream_sends_ping_comments(ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A keep-alive every 15 s keeps proxies with an idle timeout of 60 s from closing the stream."""
    assert 0 < sse._PING_INTERVAL <= 15
    monkeypatch.setattr("fastapi.routing._PING_INTERVAL", 0.05)
    job = await submitted(ada, [1])
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        await changes.next()
        for _ in range(3):
            assert await asyncio.wait_for(changes.comment(), 15) == ": ping"


async def test_job_stream_coalesces_rapid_changes(api: Api, ada: httpx2.AsyncClient, toy: Mill) -> None:
    job = await submitted(ada, list(range(50)))
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        await changes.next()
        started = asyncio.get_running_loop().time()
        for _ in range(20):
            await ada.post(f"/v1/jobs/{job}/pause")
            await ada.post(f"/v1/jobs/{job}/resume")
        await drain(toy, db=api.db)
        seen = 1
        while (await changes.next())["data"]["status"] != "completed":
            seen += 1
        assert seen <= 2 + 2 * (asyncio.get_running_loop().time() - started)


async def test_job_stream_sends_deleted_event_and_ends_when_job_is_deleted(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        await changes.next()
        await ada.delete(f"/v1/jobs/{job}")
        assert (await changes.next())["event"] == "deleted"
        with pytest.raises(EOFError):
            await changes.next()


async def test_user_stream_sends_own_jobs_only_and_admin_stream_all(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    mine = await submitted(ada, [1])
    async with stream(ada, "/v1/events") as tab, stream(root, "/v1/events?user_id=all") as everything:
        assert (await tab.next())["data"]["id"] == mine
        assert (await everything.next())["data"]["id"] == mine
        foreign = await submitted(bob, [1])
        new = await submitted(ada, [1])
        assert (await tab.next())["data"]["id"] == new
        assert {(await everything.next())["data"]["id"], (await everything.next())["data"]["id"]} == {foreign, new}


async def test_user_stream_resumed_by_last_event_id_sends_jobs_closed_meanwhile(ada: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    async with stream(ada, "/v1/events") as tab:
        seen = (await tab.next())["id"]
    await ada.post(f"/v1/jobs/{job}/cancel")
    async with stream(ada, "/v1/events", seen) as tab:
        assert (await tab.next())["data"]["status"] == "cancelled"


async def test_job_stream_of_other_user_returns_404(ada: httpx2.AsyncClient, bob: httpx2.AsyncClient) -> None:
    job = await submitted(ada, [1])
    assert (await bob.get(f"/v1/jobs/{job}/events")).status_code == 404
    assert (await bob.get("/v1/events?user_id=all")).status_code == 403
    assert (await bob.get("/v1/events", headers={"Last-Event-ID": "x"})).status_code == 422


async def test_job_stream_ends_when_api_key_is_revoked(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_event_routes, "STREAM_REAUTHORIZE_INTERVAL_S", 0.0)
    job = await submitted(ada, [1])
    made = (await ada.post("/v1/keys", json={})).json()
    spare = api.client({"Authorization": f"Bearer {made['key']}"})
    async with stream(spare, f"/v1/jobs/{job}/events") as changes:
        await changes.next()
        await ada.delete(f"/v1/keys/{made['prefix']}")
        await ada.post(f"/v1/jobs/{job}/pause")
        await changes.next()
        with pytest.raises(EOFError):
            await changes.next()


async def test_user_stream_sends_own_job_when_other_user_has_many_jobs(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    mine = await submitted(ada, [1])
    for _ in range(101):
        await submitted(bob, [1])
    async with stream(bob, "/v1/events") as theirs, stream(ada, "/v1/events") as tab:
        await theirs.next()
        assert (await tab.next())["data"]["id"] == mine


async def test_user_stream_with_job_parameter_follows_it_despite_many_open_jobs(
    api: Api, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, root: httpx2.AsyncClient
) -> None:
    old = await submitted(ada, [1])
    await rows(api.db, "UPDATE tidemill.job SET updated_at = updated_at - interval '1 hour'")
    for _ in range(101):
        await submitted(ada, [1])
    async with stream(ada, "/v1/events") as tab, stream(root, f"/v1/events?job={old}") as named:
        assert old not in {(await tab.next())["data"]["id"] for _ in range(100)}
        assert (await named.next())["data"]["id"] == old, "the same for a job of another user"
    assert (await bob.get(f"/v1/events?job={old}")).status_code == 404


async def test_stream_limit_per_user_rejects_excess_without_affecting_other_users(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_feed, "OPEN_STREAMS_PER_USER_MAX", 1)
    async with stream(ada, f"/v1/jobs/{await submitted(ada, [1])}/events") as first:
        await first.next()
        assert (await ada.get("/v1/events")).status_code == 503
        async with stream(bob, f"/v1/jobs/{await submitted(bob, [1])}/events") as theirs:
            await theirs.next()


async def test_stream_limit_per_user_holds_for_concurrent_requests(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_feed, "OPEN_STREAMS_PER_USER_MAX", 3)

    async def status(done: asyncio.Event) -> int:
        async with ada.stream("GET", "/v1/events") as response:
            seen.append(response.status_code)
            if len(seen) == 12:
                done.set()
            await until(done)
            return response.status_code

    for _ in range(2):
        seen: list[int] = []
        done = asyncio.Event()
        found = await asyncio.gather(*(status(done) for _ in range(12)))
        assert (found.count(200), found.count(503)) == (3, 9)
        await eventually(lambda: _is_free(api))


async def _is_free(api: Api) -> bool:
    """Return whether ended streams have released their slots."""
    return not api.app.state.runtime.get(make_job_feed)._open_streams


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:01+00:00", "0001-01-01", "9999-12-31T23:59:59-14:00"])
async def test_user_stream_accepts_extreme_timestamps_as_last_event_id(ada: httpx2.AsyncClient, moment: str) -> None:
    job = await submitted(ada, [1])
    async with stream(ada, "/v1/events", moment) as changes:
        assert (await changes.next())["data"]["id"] == job


async def test_new_user_stream_skips_jobs_closed_before_it_opened(ada: httpx2.AsyncClient) -> None:
    old = await submitted(ada, [1])
    async with stream(ada, "/v1/events") as first:
        seen = await first.next()
        assert seen["data"]["id"] == old
        await ada.post(f"/v1/jobs/{old}/cancel")
        assert (await first.next())["data"]["status"] == "cancelled"
        async with stream(ada, "/v1/events") as second, stream(ada, "/v1/events", seen["id"]) as third:
            assert (await third.next())["data"]["id"] == old
            new = await submitted(ada, [1])
            assert (await second.next())["data"]["id"] == new


async def test_session_check_by_open_stream_does_not_extend_session(api: Api) -> None:
    limits = users.SessionLimits(idle=100, longest=1_000)
    token = await api.db.run(users.create_session_token, LOCAL_USER_ID)
    await rows(api.db, "UPDATE tidemill.session SET seen_at = seen_at - interval '90 s'")
    before = await rows(api.db, "SELECT seen_at FROM tidemill.session")
    assert await api.db.run(users.peek_session_principal, token, limits) is not None
    assert await rows(api.db, "SELECT seen_at FROM tidemill.session") == before
    assert await api.db.run(users.authenticate_session, token, limits) is not None
    assert await rows(api.db, "SELECT seen_at FROM tidemill.session") != before


async def test_user_stream_sends_open_comment_immediately(ada: httpx2.AsyncClient) -> None:
    async with asyncio.timeout(10), stream(ada, "/v1/events") as tab:
        assert await anext(tab._lines) == ": open"


async def test_global_stream_limit_rejects_excess_with_retry_after(
    api: Api, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_feed, "OPEN_STREAMS_MAX", 1)
    job = await submitted(ada, [1])
    async with stream(ada, f"/v1/jobs/{job}/events") as changes:
        await changes.next()
        answer = await ada.get("/v1/events")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
