"""How a worker hears of work: from the database and, where there is one, from a broker."""

from collections.abc import Coroutine
from typing import Any

from tidemill.config import Settings
from tidemill.dispatch.hints import Announcements, Hints
from tidemill.dispatch.postgres import PostgresDispatcher
from tidemill.dispatch.relay import Relay
from tidemill.dispatch.taskiq import BrokerDispatcher, broker_of, line_maker
from tidemill.engine.service import Ticking
from tidemill.engine.supervise import Supervisor
from tidemill.store import outbox
from tidemill.store.database import Database


class Hearing:
    """The loops that wake children, and the relay that tells the broker. Children that work on demand need no hints."""

    def __init__(self, db: Database, settings: Settings, supervisor: Supervisor, worker: str, kinds: list[str]) -> None:
        self._db = db
        self._url = settings.broker
        self._supervisor = supervisor
        self._worker = worker
        self._kinds = sorted(kinds)
        self._broker: BrokerDispatcher | None = None
        self._relay: Ticking | None = None

    async def loops(self, *, on_demand: bool) -> list[Coroutine[Any, Any, None]]:
        """All of them may be cancelled at any time. InvalidSettings if the broker's library is not there."""
        wake_all = self._supervisor.wake_children
        found: list[Coroutine[Any, Any, None]] = []
        if self._url is not None:
            scheme = broker_of(self._url)
            namespace = await self._db.run(outbox.register, scheme)
            self._broker = BrokerDispatcher(line_maker(self._url, namespace, self._kinds, self._worker), self._kinds)
            self._relay = Ticking("relay", Relay(self._db, self._broker, self._worker, scheme).tick)
            found.append(self._relay.run())
            if not on_demand:
                found.append(self._broker.deliver(self._hints()))
        announced = Announcements(wake_all, self._wake_relay, alone=lambda: on_demand or not self._hears_broker)
        return [*found, PostgresDispatcher(self._db).deliver(announced)]

    def state(self) -> dict[str, Any]:
        """For people: which broker, and what is wrong with it."""
        if self._url is None:
            return {}
        trouble = None if self._broker is None else self._broker.trouble
        return {"broker": {"name": broker_of(self._url), "trouble": trouble}}

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.close()

    @property
    def _hears_broker(self) -> bool:
        return self._broker is not None and self._broker.trouble is None

    def _wake_relay(self) -> None:
        """Not while there is nobody to send to: it tries again by itself, less and less often."""
        if self._relay is not None and self._hears_broker:
            self._relay.wake()

    def _hints(self) -> Hints:
        crew = self._supervisor
        wake, wake_all = crew.wake_child, crew.wake_children
        return Hints(self._db, self._worker, wake=wake, wake_all=wake_all, has_time=lambda: crew.has_time)
