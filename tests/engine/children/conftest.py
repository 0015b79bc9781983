"""Fixtures: real child processes that run time slices, with their parent in the test process."""

import importlib.util
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from engine.children.scenes import PARENT, Start
from support import Workers
from tidemill.app.mill import Mill
from tidemill.app.worker import Worker, make_worker
from tidemill.store.database import Database


@pytest.fixture
async def start(
    workers: Workers, tidemill_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Start]:
    """Start an on-demand worker for an app; it is stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(source: str, processes: int = 1, **settings: object) -> Worker:
            workers.app(source)
            for name, value in workers.env(**settings).items():
                monkeypatch.setenv(name, value)
            monkeypatch.chdir(tmp_path)  # the folder from which children import the app
            db = await stack.enter_async_context(Database(tidemill_database, size=4, name=PARENT))
            worker = make_worker(db, load(tmp_path / "app.py"), "app:mill", processes, on_demand=True)
            await worker.start()
            stack.push_async_callback(worker.stop)
            return worker

        yield start


def load(path: Path) -> Mill:
    """Import the mill of a module without keeping the module for other tests."""
    spec = importlib.util.spec_from_file_location("app_of_the_parent", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    mill = module.mill
    assert isinstance(mill, Mill)
    return mill
