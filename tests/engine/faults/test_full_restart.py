"""Tests of `tidemill up` that is paused during work, stopped and restarted: nothing is lost, counts add up."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from support import Workers, assert_sound, eventually
from tidemill.config import Settings
from tidemill.store.database import Database

APP = """
    @mill.handler("test", concurrency=200)
    async def run(item):
        await asyncio.sleep(0.001)
        return {"n": item.input}
"""


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[[], tuple[str, Callable[[], None]]]]:
    """Start `tidemill up`; return the sign-in link and a function that stops it."""
    settings = Settings(home=tmp_path / "home")
    workers = Workers(settings, tmp_path)
    workers.app(APP)
    running: list[subprocess.Popen[str]] = []
    main = "from tidemill.cli.main import main; main()"

    def start() -> tuple[str, Callable[[], None]]:
        argv = [sys.executable, "-c", main, "up", "app:mill", "--port", "0"]
        process = subprocess.Popen(argv, cwd=tmp_path, env=workers.env(), stderr=subprocess.PIPE, text=True)
        running.append(process)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        link = next(match[0] for line in lines if (match := re.search(r"http://\S+/sign-in/\S+", line)))

        def end() -> None:
            process.terminate()
            process.communicate(timeout=60)
            assert process.returncode == 0

        return link, end

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
            process.communicate(timeout=60)


@asynccontextmanager
async def browser(link: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Return a client that signed in with the link."""
    base = link.partition("/sign-in/")[0]
    async with httpx2.AsyncClient(base_url=base, timeout=60, trust_env=False) as client:
        assert (await client.post(link)).status_code == 303
        client.headers["X-CSRF-Token"] = (await client.get("/v1/me")).json()["csrf_token"]
        yield client


async def look(client: httpx2.AsyncClient, job: str) -> dict[str, Any]:
    """Return a job after checking that its counts add up."""
    found: dict[str, Any] = (await client.get(f"/v1/jobs/{job}")).json()
    counts = dict(found["counts"])
    assert counts.pop("total") == sum(counts.values())
    return found


@pytest.mark.parametrize("size", [20_000, pytest.param(500_000, marks=pytest.mark.full)])
async def test_paused_job_resumes_and_completes_after_restart_of_tidemill_up(
    up: Callable[[], tuple[str, Callable[[], None]]], tmp_path: Path, size: int
) -> None:
    link, end = up()
    async with browser(link) as client:
        rows, lines = {"Content-Type": "application/x-ndjson"}, "\n".join(map(str, range(size)))
        sent = [await client.post("/v1/jobs?kind=test", content=lines, headers=rows) for _ in range(2)]
        assert [answer.status_code for answer in sent] == [202, 202], sent[0].text
        jobs = [answer.json()["id"] for answer in sent]

        async def a_third() -> bool:
            return bool((await look(client, jobs[0]))["counts"]["done"] >= 0.3 * size)

        await eventually(a_third, 120)
        assert [(await client.post(f"/v1/jobs/{job}/pause")).status_code for job in jobs] == [200, 200]
    end()

    link, end = up()
    async with browser(link) as client:
        kept = await look(client, jobs[0])
        assert kept["status"] == "paused"
        assert 0.3 * size <= kept["counts"]["done"] < size
        assert kept["counts"]["processing"] == 0
        assert (await client.post(f"/v1/jobs/{jobs[0]}/resume")).status_code == 200
        assert (await client.post(f"/v1/jobs/{jobs[1]}/cancel")).status_code == 200

        async def finished() -> bool:
            return all([(await look(client, job))["closed_at"] is not None for job in jobs])

        await eventually(finished, 180)
        first, second = [await look(client, job) for job in jobs]
        assert (first["status"], first["counts"]["done"]) == ("completed", size)
        assert second["status"] == "cancelled"
        # It may have been paused and cancelled before its source was read to the end.
        assert second["counts"]["done"] + second["counts"]["cancelled"] == second["counts"]["total"] <= size
        url = f"postgresql://postgres@/postgres?host={tmp_path / 'home' / 'postgres'}"
        async with Database(url, size=2) as db:
            await assert_sound(db)
    end()
