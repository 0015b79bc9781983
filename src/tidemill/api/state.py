"""What the routes share, and how they ask for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Protocol
from uuid import UUID

from fastapi import Depends, Request

from tidemill.api.hub import Hub
from tidemill.api.rate import RateLimit
from tidemill.api.shared import Shared
from tidemill.api.streams import Streams
from tidemill.config import Settings
from tidemill.connectors.blobs import Blobs
from tidemill.domain.slice import Slice
from tidemill.operations.distributions import Distributions
from tidemill.operations.imports import Importing
from tidemill.operations.incoming import Incoming
from tidemill.operations.pending_counts import PendingCounts
from tidemill.operations.resources import Resources
from tidemill.operations.scanning import Scanner
from tidemill.operations.services import ServiceJobs
from tidemill.store.database import Database
from tidemill.store.sessions import Limits


class Pool(Protocol):
    """Children that work when they are asked to."""

    async def kickoff(self, job_id: UUID, kind: str, seconds: float) -> Slice: ...


@dataclass
class Service:
    """One API process."""

    db: Database
    settings: Settings
    blobs: Blobs
    rate: RateLimit
    resources: Resources
    importing: Importing
    distributions: Distributions
    scanner: Scanner
    services: ServiceJobs
    pool: Pool | None = None
    normalizers: Mapping[str, Callable[[str], str]] = field(default_factory=dict)
    session_limits: Limits = field(init=False)
    hub: Hub = field(init=False)
    incoming: Incoming = field(init=False)
    shared: Shared[bytes] = field(default_factory=Shared)
    pending_counts: PendingCounts = field(init=False)
    streams: Streams = field(init=False)

    def __post_init__(self) -> None:
        self.hub = Hub(self.db)
        self.incoming = Incoming(self.db, self.blobs)
        self.pending_counts = PendingCounts(self.db)
        self.streams = Streams(self.settings.export_streams)
        self.session_limits = Limits(self.settings.session_idle_s, self.settings.session_max_s)


def service(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def _service(request: Request) -> Service:  # async, or it would be called in a thread: 0.3 ms
    return service(request)


async def _database(request: Request) -> Database:
    return service(request).db


Serving = Annotated[Service, Depends(_service)]
Db = Annotated[Database, Depends(_database)]
