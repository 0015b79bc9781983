"""How a worker hears of work: from the database and, where there is one, from a broker."""

from collections.abc import Coroutine
from typing import Any

from tidemill.config import Settings
from tidemill.dispatch import outbox
from tidemill.dispatch.broker_dispatcher import BrokerDispatcher, detect_broker, make_connection_factory
from tidemill.dispatch.outbox_relay import OutboxRelay
from tidemill.dispatch.postgres_dispatcher import PostgresDispatcher
from tidemill.dispatch.wakeup_receivers import HintReceiver, NotificationReceiver
from tidemill.engine.children.supervisor import Supervisor
from tidemill.engine.loop import CallbackLoop
from tidemill.store.database import Database


class WakeupLoops:
    """The loops that wake children, and the relay that tells the broker. Children that work on demand need no hints."""

    def __init__(self, db: Database, settings: Settings, supervisor: Supervisor, worker: str, kinds: list[str]) -> None:
        self._db = db
        self._broker_url = settings.broker
        self._supervisor = supervisor
        self._worker = worker
        self._kinds = sorted(kinds)
        self._broker: BrokerDispatcher | None = None
        self._relay: CallbackLoop | None = None

    async def build_loops(self, *, on_demand: bool) -> list[Coroutine[Any, Any, None]]:
        """All of them may be cancelled at any time. InvalidSettings if the broker's library is not there."""
        wake_all = self._supervisor.wake_children
        found: list[Coroutine[Any, Any, None]] = []
        if self._broker_url is not None:
            scheme = detect_broker(self._broker_url)
            namespace = await self._db.run(outbox.register_broker, scheme)
            self._broker = BrokerDispatcher(
                make_connection_factory(self._broker_url, namespace, self._kinds, self._worker), self._kinds
            )
            self._relay = CallbackLoop("relay", OutboxRelay(self._db, self._broker, self._worker, scheme).tick)
            found.append(self._relay.run())
            if not on_demand:
                found.append(self._broker.deliver(self._make_hint_receiver()))
        announced = NotificationReceiver(
            wake_all, self._wake_relay_if_connected, is_only_source=lambda: on_demand or not self._is_broker_connected
        )
        return [*found, PostgresDispatcher(self._db).deliver(announced)]

    def describe_broker(self) -> dict[str, Any]:
        """For people: which broker, and what is wrong with it."""
        if self._broker_url is None:
            return {}
        trouble = None if self._broker is None else self._broker.current_error
        return {"broker": {"name": detect_broker(self._broker_url), "trouble": trouble}}

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.close()

    @property
    def _is_broker_connected(self) -> bool:
        return self._broker is not None and self._broker.current_error is None

    def _wake_relay_if_connected(self) -> None:
        """Not while there is nobody to send to: it tries again by itself, less and less often."""
        if self._relay is not None and self._is_broker_connected:
            self._relay.wake()

    def _make_hint_receiver(self) -> HintReceiver:
        crew = self._supervisor
        wake, wake_all = crew.wake_child, crew.wake_children
        return HintReceiver(
            self._db, self._worker, wake=wake, wake_all=wake_all, has_idle_lane=lambda: crew.has_idle_lane
        )
