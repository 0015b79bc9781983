"""Tests that every dispatcher passes: PostgreSQL, Redis, RabbitMQ."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dispatch.listeners import Ear, envelope
from support import eventually, rows
from support.brokers import Proxy
from tidemill.dispatch.dispatchers import PostgresDispatcher, WakeupDispatcher
from tidemill.store.database import Database

Listen = Callable[..., Ear]


@asynccontextmanager
async def _cut_postgres(db: Database) -> AsyncIterator[Any]:
    async def cut() -> None:
        await rows(db, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '%%listen'")

    yield PostgresDispatcher(db), cut


@asynccontextmanager
async def _cut_broker(url: str, make: Callable[..., Any]) -> AsyncIterator[Any]:
    proxy = Proxy(url)
    async with proxy.running() as address:
        dispatcher = make(address)

        async def cut() -> None:
            proxy.cut()

        yield dispatcher, cut
        await dispatcher.close()


@pytest.fixture(params=["postgres", "redis", "rabbitmq"])
async def world(request: pytest.FixtureRequest, db: Database, dispatchers: Callable[..., Any]) -> AsyncIterator[Any]:
    """A dispatcher, and a function that breaks its connections."""
    if request.param == "postgres":
        async with _cut_postgres(db) as found:
            yield found
    else:
        async with _cut_broker(request.getfixturevalue(request.param), dispatchers) as found:
            yield found


@pytest.fixture
def dispatcher(world: tuple[WakeupDispatcher, Any]) -> WakeupDispatcher:
    return world[0]


async def test_dispatched_hint_is_received(dispatcher: WakeupDispatcher, ears: Listen) -> None:
    ear, said = ears(dispatcher), envelope()
    await ear.has_begun()
    assert await dispatcher.dispatch([said]) == [None]
    await ear.has_heard(said.job_id)


async def test_dispatch_sends_a_thousand_hints_in_one_call(dispatcher: WakeupDispatcher, ears: Listen) -> None:
    ear, said = ears(dispatcher), [envelope() for _ in range(1_000)]
    await ear.has_begun()
    assert await dispatcher.dispatch(said) == [None] * 1_000
    await ear.has_heard(*(one.job_id for one in said))


async def test_dispatch_of_no_hints_returns_empty_list(dispatcher: WakeupDispatcher) -> None:
    assert await dispatcher.dispatch([]) == []


async def test_hint_dispatched_repeatedly_is_received_at_least_once(dispatcher: WakeupDispatcher, ears: Listen) -> None:
    ear, said, last = ears(dispatcher), envelope(), envelope()
    await ear.has_begun()
    await dispatcher.dispatch([said, said])
    await dispatcher.dispatch([said, last])
    await ear.has_heard(last.job_id)
    assert 1 <= ear.heard.count(said.job_id) <= 3


async def test_dispatcher_reconnects_after_connection_is_cut(world: Any, ears: Listen) -> None:
    dispatcher, cut = world
    ear = ears(dispatcher)
    for times in (1, 2, 3):
        await ear.has_begun(times)  # hints may have been missed: the worker checks for work
        said = envelope()

        async def is_said(said: Any = said) -> bool:
            try:
                return bool(await dispatcher.dispatch([said]) == [None])
            except Exception:  # noqa: BLE001  sent again until the dispatcher accepts it
                return False

        await eventually(is_said)
        await ear.has_heard(said.job_id)
        await cut()
