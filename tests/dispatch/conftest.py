"""Fixtures: one broker of each type for the whole test run, and listeners."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import fasteners
import pytest

from dispatch.listeners import Ear
from support import rows
from support.brokers import BrokerServer, folder_for, make_broker, need
from support.leftover_processes import WORKER
from tidemill.dispatch import outbox
from tidemill.dispatch.dispatchers import BrokerDispatcher, make_connection_factory
from tidemill.store.database import Database

_started_here: list[BrokerServer] = []


def _running(name: str, factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    need(name)
    folder = folder_for(name, factory.mktemp(name))
    try:
        with make_broker(name, folder) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _shared(name: str, factory: pytest.TempPathFactory, run: str) -> Iterator[str]:
    """Share one broker between all test processes: the first starts it, the last stops it."""
    need(name)
    place = factory.getbasetemp().parent / f"shared-{name}-{run}"
    place.mkdir(exist_ok=True)
    users, mutex = place / "users.json", fasteners.InterProcessLock(place / "lock")
    with mutex:
        known = json.loads(users.read_text()) if users.exists() else _started(name, factory)
        users.write_text(json.dumps(known | {"n": known["n"] + 1}))
    yield known["url"]
    with mutex:
        known = json.loads(users.read_text())
        users.write_text(json.dumps(known | {"n": known["n"] - 1}))
        if known["n"] == 1:
            users.unlink()
            for group in known["groups"]:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGKILL)
            shutil.rmtree(known["folder"], ignore_errors=True)


def _started(name: str, factory: pytest.TempPathFactory) -> dict[str, Any]:
    broker = make_broker(name, folder_for(name, factory.mktemp(name)))
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(WORKER, raising=False)  # it outlives this process if this process crashes
        broker.start()
    _started_here.append(broker)  # avoids a ResourceWarning about the running process
    return {"n": 0, "url": broker.url, "groups": broker.process_groups, "folder": str(broker.folder)}


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a shared Redis; tests that kill a broker must start their own."""
    for server in _running("redis", tmp_path_factory):
        yield server.url


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a shared RabbitMQ, which takes long to start."""
    yield from _shared("rabbitmq", tmp_path_factory, os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid())))


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> str:
    """The URL of each broker in turn."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    """A Redis that the test may kill."""
    yield from _running("redis", tmp_path_factory)


MakeDispatcher = Callable[..., BrokerDispatcher]


@pytest.fixture
async def dispatchers(db: Database) -> AsyncIterator[MakeDispatcher]:
    """Create dispatchers for this database; they are closed after the test."""
    async with AsyncExitStack() as stack:

        def make(url: str, kinds: tuple[str, ...] = ("test",), worker: str = "w1", space: str = "") -> BrokerDispatcher:
            dispatcher = BrokerDispatcher(make_connection_factory(url, space or namespace, kinds, worker), kinds)
            stack.push_async_callback(dispatcher.close)
            return dispatcher

        namespace = await db.run(outbox.register_broker_and_get_namespace, "redis")
        yield make
    await rows(db, "DELETE FROM tidemill.broker")


@pytest.fixture
async def ears() -> AsyncIterator[Callable[..., Ear]]:
    """Listen until the test ends."""
    async with AsyncExitStack() as stack:

        def listen(dispatcher: object, ear: Ear | None = None) -> Ear:
            return (ear or Ear()).listening(dispatcher, stack)

        yield listen
