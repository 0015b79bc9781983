"""Start and stop hooks run once per worker process, before its first item and after its last."""

import signal
from pathlib import Path

import pytest

from support import Workers, closed
from tidemill import Item, Mill
from tidemill.core.errors import StartHookFailed
from tidemill.core.status import JobStatus
from tidemill.store.database import Database
from tidemill.telemetry.events import subscribe
from tidemill.testing import drain

APP = """
    def log(text):
        with open("hooks.txt", "a") as file:
            file.write(f"{os.getpid()} {text}\\n")

    client = None

    @mill.on_start
    async def connect():
        global client
        client = asyncio.get_running_loop()
        log("start")

    @mill.on_start
    def load():
        log("load")

    @mill.on_stop
    def unload():
        log("unload")

    @mill.on_stop
    async def disconnect():
        assert client is asyncio.get_running_loop()
        log("stop")

    @mill.handler("test")
    async def run(item):
        assert client is asyncio.get_running_loop()
        log("item")
"""


async def test_hooks_run_once_in_each_child_around_its_items(
    workers: Workers, mill: Mill, db: Database, tmp_path: Path
) -> None:
    worker = workers.start(workers.app(APP), processes=2)
    mill.handler("test")(_run_nothing)
    job_id = await mill.submit_async("test", range(20))
    assert (await closed(db, job_id)).counts.done == 20
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    by_child: dict[str, list[str]] = {}
    for line in (tmp_path / "hooks.txt").read_text().splitlines():
        child, _, text = line.partition(" ")
        by_child.setdefault(child, []).append(text)
    assert len(by_child) == 2
    for texts in by_child.values():
        assert texts[:2] == ["start", "load"]
        assert texts[-2:] == ["stop", "unload"]
        assert set(texts[2:-2]) <= {"item"}


async def _run_nothing(item: Item) -> None: ...


def test_a_start_hook_that_raises_stops_the_worker(workers: Workers, tmp_path: Path) -> None:
    app = workers.app("""
        @mill.on_start
        def connect():
            with open("starts.txt", "a") as file:
                file.write("start\\n")
            raise ConnectionError("no model server")
    """)
    assert workers.start(app).wait(60) == 2
    assert (tmp_path / "starts.txt").read_text() == "start\n", "a failed start hook is not retried"


async def test_drain_runs_the_hooks_around_the_items(mill: Mill) -> None:
    seen: list[str] = []
    mill.on_start(lambda: seen.append("start"))
    mill.on_stop(lambda: seen.append("stop"))

    @mill.handler("test")
    async def run(item: Item) -> None:
        seen.append("item")

    job_id = await mill.submit_async("test", [1, 2])
    await drain(mill)
    assert seen == ["start", "item", "item", "stop"]
    assert (await mill.job_async(job_id)).status is JobStatus.COMPLETED


async def test_a_start_hook_that_raises_is_named(mill: Mill) -> None:
    @mill.on_start
    async def connect() -> None:
        raise ConnectionError("no server")

    with pytest.raises(StartHookFailed, match=r"connect failed: ConnectionError: no server"):
        await drain(mill)


async def test_a_stop_hook_that_raises_is_reported_and_the_others_run(mill: Mill) -> None:
    seen: list[str] = []
    mill.on_stop(lambda: seen.append("stop"))

    @mill.on_stop
    def disconnect() -> None:
        raise ConnectionError("lost")

    events: list[str] = []
    unsubscribe = subscribe(lambda event: events.append(f"{event.name} {event.fields.get('error')}"))
    await drain(mill)
    unsubscribe()
    assert "hook.failed ConnectionError: lost" in events
    assert seen == ["stop"]
