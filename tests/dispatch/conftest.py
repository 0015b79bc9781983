"""Brokers for the whole run, one of each; and whoever listens to them."""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack

import pytest

from brokers import Broker, folder_for, make_broker, need
from dispatch.scenes import Ear
from support import rows
from tidemill.dispatch.taskiq import BrokerDispatcher, line_maker
from tidemill.store import outbox
from tidemill.store.database import Database


def _running(name: str, factory: pytest.TempPathFactory) -> Iterator[Broker]:
    need(name)
    folder = folder_for(name, factory.mktemp(name))
    try:
        with make_broker(name, folder) as broker:
            yield broker
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    yield from _running("redis", tmp_path_factory)


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    yield from _running("rabbitmq", tmp_path_factory)


@pytest.fixture(params=["redis", "rabbitmq"])
def broker(request: pytest.FixtureRequest) -> Broker:
    """Of the whole run: whoever wants to kill one starts his own."""
    found: Broker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """To be killed."""
    yield from _running("redis", tmp_path_factory)


MakeDispatcher = Callable[..., BrokerDispatcher]


@pytest.fixture
async def dispatchers(db: Database) -> AsyncIterator[MakeDispatcher]:
    """Makes dispatchers of this database's installation; they are closed at the end."""
    async with AsyncExitStack() as stack:

        def make(url: str, kinds: tuple[str, ...] = ("test",), worker: str = "w1", space: str = "") -> BrokerDispatcher:
            dispatcher = BrokerDispatcher(line_maker(url, space or namespace, kinds, worker), kinds)
            stack.push_async_callback(dispatcher.close)
            return dispatcher

        namespace = await db.run(outbox.register, "redis")
        yield make
    await rows(db, "DELETE FROM tidemill.broker")


@pytest.fixture
async def ears() -> AsyncIterator[Callable[..., Ear]]:
    """Listens until the test is over."""
    async with AsyncExitStack() as stack:

        def listen(dispatcher: object, ear: Ear | None = None) -> Ear:
            return (ear or Ear()).listening(dispatcher, stack)

        yield listen
