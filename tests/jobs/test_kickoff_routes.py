"""Kickoff over HTTP, in the child processes of a real `tidemill serve`."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import Workers, assert_sound, eventually, rows
from support.forks import MAIN, Forked
from tidemill.core.principal import Role
from tidemill.store import users
from tidemill.store.database import Database

APP = """
    @mill.handler("slow")
    async def slow(item):
        await asyncio.sleep(item.input / 1000)
        return {"slept": item.input}

    @mill.handler("other")
    async def other(item):
        return 1
"""


class Serving:
    """A client of a `tidemill serve` in a separate process."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def kickoff(self, job: str, duration_ms: int) -> httpx2.Response:
        """Retry the kickoff until a child process has started."""

        async def post() -> httpx2.Response | None:
            answer = await self.client.post(f"/v1/jobs/{job}/kickoff?durationMs={duration_ms}")
            return None if answer.status_code == 503 else answer

        return await eventually(post) or httpx2.Response(503)

    async def submit(self, inputs: list[Any], kind: str = "slow") -> str:
        answer = await self.client.post("/v1/jobs", json={"kind": kind, "inputs": inputs})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


@pytest.fixture
def address(workers: Workers, tmp_path: Path) -> Iterator[str]:
    """Run `tidemill serve`, yield its URL, and stop it cleanly."""
    workers.app(APP)
    argv = [sys.executable, "-c", MAIN, "serve", "app:mill", "--port", "0"]
    process: subprocess.Popen[str] = Forked(argv, cwd=tmp_path, env=workers.env(), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    yield next(match[1] for line in lines if (match := re.search(r"Listening at (http://\S+)", line)))
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


@pytest.fixture
async def serving(address: str, db: Database) -> AsyncIterator[Serving]:
    user = await db.run(users.add_user, "ada", Role.USER)
    key, _ = await db.run(users.add_key, user.id)
    async with httpx2.AsyncClient(
        base_url=address, headers={"Authorization": f"Bearer {key}"}, timeout=60, trust_env=False
    ) as client:
        yield Serving(client)


async def test_kickoff_without_workers_completes_job_in_repeated_calls(serving: Serving, db: Database) -> None:
    job = await serving.submit([20] * 2_000)
    slices: list[dict[str, Any]] = []
    while not slices or not slices[-1]["is_drained"]:
        answer = await serving.kickoff(job, 300)
        assert answer.status_code == 200, answer.text
        slices.append(answer.json())
    shown = (await serving.client.get(f"/v1/jobs/{job}")).json()
    assert (shown["status"], shown["counts"]["done"]) == ("completed", 2_000)
    assert sum(one["settled"] for one in slices) == 2_000
    assert len(slices) > 1
    await assert_sound(db)
    again = await serving.client.post(f"/v1/jobs/{job}/kickoff")
    assert again.status_code == 409
    assert "is completed" in again.json()["detail"]


async def test_kickoff_releases_batch_when_client_disconnects(serving: Serving, db: Database) -> None:
    job = await serving.submit([50] * 2_000)

    async def is_at_work() -> bool:
        return bool(await rows(db, "SELECT 1 FROM tidemill.batch WHERE state = 'leased'"))

    async def has_let_go() -> bool:
        return not await is_at_work()

    task = asyncio.create_task(serving.kickoff(job, 60_000))
    await eventually(is_at_work)
    task.cancel()
    await eventually(has_let_go)
    shown = (await serving.client.get(f"/v1/jobs/{job}")).json()["counts"]
    assert shown["done"] + shown["pending"] == 2_000
    assert await rows(db, "SELECT max(losses), max(crashes) FROM tidemill.batch") == [(0, 0)]


async def test_kickoff_rejects_duration_out_of_range(serving: Serving) -> None:
    job = await serving.submit([1])
    for duration in ("0", "99", "60001", "x", "-5"):
        answer = await serving.client.post(f"/v1/jobs/{job}/kickoff?duration_ms={duration}")
        assert answer.status_code == 422, duration


async def test_kickoff_of_unknown_kind_or_paused_job_conflicts(serving: Serving, db: Database) -> None:
    await rows(db, "INSERT INTO tidemill.kind (name, sparse, options) VALUES ('foreign', false, '{}')")
    foreign = await serving.submit([1], kind="foreign")
    answer = await serving.client.post(f"/v1/jobs/{foreign}/kickoff")
    assert answer.status_code == 409
    assert "foreign" in answer.json()["detail"]
    paused = await serving.submit([1], kind="other")
    await serving.client.post(f"/v1/jobs/{paused}/pause")
    answer = await serving.client.post(f"/v1/jobs/{paused}/kickoff")
    assert answer.status_code == 409
    assert "is paused" in answer.json()["detail"]


async def test_kickoff_of_one_user_leaves_child_to_another_user(serving: Serving, address: str, db: Database) -> None:
    long = await serving.submit([50] * 20_000)
    assert (await serving.kickoff(long, 100)).status_code == 200, "the child has started"
    user = await db.run(users.add_user, "bob", Role.USER)
    key, _ = await db.run(users.add_key, user.id)
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=address, headers=headers, timeout=60, trust_env=False) as client:
        short = await Serving(client).submit([1] * 20)
        own = [asyncio.create_task(serving.client.post(f"/v1/jobs/{long}/kickoff?durationMs=60000")) for _ in range(5)]
        (excess,), _ = await asyncio.wait(own, return_when=asyncio.FIRST_COMPLETED)
        assert excess.result().status_code == 429
        assert excess.result().json()["quota"] == {"name": "time_slices", "used": 5, "limit": 4}
        answer = await client.post(f"/v1/jobs/{short}/kickoff?durationMs=500")
        assert (answer.status_code, answer.json()["is_drained"]) == (200, True), answer.text
        for task in own:
            task.cancel()
        await asyncio.wait(own)
