"""The services that a worker knows, each with its desk, opened when it is first needed."""

import os
from collections.abc import Mapping, Sequence

from tidemill.domain.addresses import Allowed
from tidemill.domain.declaration.suggest import did_you_mean
from tidemill.domain.outcome import Fail
from tidemill.domain.services import Service
from tidemill.domain.services.declare import address
from tidemill.domain.services.permits import NoLimit, Permits
from tidemill.domain.services.service import undeclared
from tidemill.handlers.services.desk import ServiceDesk


class Directory:
    def __init__(
        self,
        declared: Mapping[str, Service],
        *,
        allowed: Sequence[Allowed] = (),
        permits: Permits | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._declared = declared
        self._allowed = allowed
        self._permits = permits or NoLimit()
        self._environment = environment
        self._desks: dict[str, ServiceDesk] = {}

    def desk(self, name: str) -> ServiceDesk:
        """Fail if there is no such service here."""
        if name not in self._desks:
            service = self._find(name)
            reach = service.reach(self._allowed)
            self._desks[name] = ServiceDesk(service, reach, self._environment, self._permits)
        return self._desks[name]

    async def close(self) -> None:
        for desk in self._desks.values():
            await desk.close()

    def _find(self, name: str) -> Service:
        if "://" in name:
            try:
                return undeclared(address(name))
            except ValueError as error:
                raise Fail(f"{name[:200]}: {error}", code="invalid") from None
        if name not in self._declared:
            known = did_you_mean(name, self._declared)
            reason = f"the worker knows no service {name[:100]!r}: it reads another tidemill.toml{known}"
            raise Fail(reason, code="unknown_service", retryable=True)
        return self._declared[name]
