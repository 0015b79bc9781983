"""Parts from settings."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.connectors.layout import checked
from tidemill.connectors.source import Sources
from tidemill.declared import load, load_datasets, load_limiters, load_services, load_watches
from tidemill.domain.addresses import Allowed
from tidemill.domain.declaration import declarations
from tidemill.domain.distribution import Dataset, Reuse, datasets
from tidemill.domain.errors import InvalidInput, InvalidSettings
from tidemill.domain.handler import Handler
from tidemill.domain.limits import Limiter, check_named, limiters
from tidemill.domain.resource import NORMALIZERS
from tidemill.domain.retry import RetryPolicy
from tidemill.domain.watching import FolderAddress, Watch
from tidemill.domain.watching.overlap import overlaps
from tidemill.engine.context import Context
from tidemill.engine.logbook import Logbook
from tidemill.handlers import builtins
from tidemill.handlers.distribution import DistributionOptions
from tidemill.handlers.registry import Registry
from tidemill.handlers.services import Directory
from tidemill.operations.distributions import Distributions
from tidemill.operations.imports import Importing
from tidemill.operations.resources import Resources
from tidemill.operations.scanning import Scanner
from tidemill.operations.services import ServiceJobs
from tidemill.operations.taking import Taker
from tidemill.store import embedded
from tidemill.store.database import Database
from tidemill.store.migrate import check_schema

T = TypeVar("T")


def database_url(settings: Settings) -> str:
    """The configured server, or the embedded one, started if need be."""
    return settings.database_url or embedded.start(settings.home)


@asynccontextmanager
async def open_database(
    settings: Settings, *, size: int | None = None, check: bool = True, patience: float | None = None
) -> AsyncIterator[Database]:
    url = await asyncio.to_thread(database_url, settings)
    async with Database(
        url,
        size=size or settings.db_max_conns,
        idle=settings.db_max_idle_conns,
        lifetime=settings.db_conn_max_lifetime,
        timeout=settings.db_timeout_ms / 1000,
        prepare=settings.db_prepare,
        patience=patience,
        slow_ms=settings.slow_query_ms,
    ) as db:
        if check:
            await check_schema(db)
        yield db


def make_sources(settings: Settings) -> Sources:
    """What opens the files of jobs: stored ones, and remote ones that are fetched first."""

    def fetch(url: str, blob_id: str, going_on: Callable[[], bool]) -> object:
        # Few processes ever fetch anything: the others are spared an HTTP client.
        from tidemill.connectors.remote.download import Remote  # noqa: PLC0415
        from tidemill.connectors.remote.limits import RemoteLimits  # noqa: PLC0415

        return Remote(blobs, RemoteLimits.of(settings)).download(url, blob_id, going_on=going_on)

    blobs, unpacked = open_blobs(settings.blobs), settings.max_unpacked_mb << 20
    return Sources(blobs, max_row_bytes=settings.max_row_bytes, max_unpacked_bytes=unpacked, fetch=fetch)


def make_resources(settings: Settings, registry: Registry | None = None) -> Resources:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    registry = registry or Registry()
    names = [*NORMALIZERS, *registry.normalizers]
    return Resources(load(settings.config, names) | declarations({"resources": registry.declared}, names))


def make_importing(db: Database, settings: Settings) -> Importing:
    return Importing(db, open_blobs(settings.blobs), make_sources(settings))


def make_datasets(settings: Settings, registry: Registry | None = None) -> dict[str, Dataset]:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    registry = registry or Registry()
    return load_datasets(settings.config) | datasets({"datasets": registry.datasets}, registry.producers)


def make_limiters(settings: Settings, registry: Registry) -> dict[str, Limiter]:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    found = load_limiters(settings.config) | limiters({"limiters": registry.limiters})
    kinds = [(f"kind {handler.kind!r}", handler.limiter) for handler in registry.all()]
    called = [(f"service {service.name!r}", service.limit) for service in load_services(settings.config).values()]
    check_named(found, [*kinds, *called])
    return found


def make_distributions(settings: Settings, declared: Mapping[str, Dataset]) -> Distributions:
    reuse = Reuse(settings.reuse_enabled, settings.reuse_days)
    return Distributions(declared, reuse=reuse, max_inputs=settings.max_distribution_inputs)


def make_services(settings: Settings) -> ServiceJobs:
    """What is declared in the file of the settings; InvalidSettings with every mistake."""
    return ServiceJobs(load_services(settings.config))


def make_watches(settings: Settings) -> dict[str, Watch]:
    """What the file of the settings declares; InvalidSettings with all that does not fit the other settings."""
    declared, problems = load_watches(settings.config), []
    for one in declared.values():
        source = one.source
        if isinstance(source, FolderAddress) and source.root not in settings.sources:
            known = ", ".join(sorted(settings.sources)) or "none"
            problems.append(f"watches.{one.name}.source: TIDEMILL_SOURCES has no {source.root!r}; it has: {known}")
        try:
            checked(dict(one.layout))
        except InvalidInput as error:
            problems.append(f"watches.{one.name}.layout: {error}")
    folders = {
        one.name: (settings.sources[one.source.root] / one.source.path).resolve()
        for one in declared.values()
        if isinstance(one.source, FolderAddress) and one.source.root in settings.sources
    }
    problems += overlaps(declared.values(), folders)
    if problems:
        raise InvalidSettings("these watches cannot be:\n" + "\n".join(f"  - {line}" for line in problems))
    return declared


def make_scanner(db: Database, settings: Settings, resources: Resources, *, worker: str) -> Scanner:
    blobs = open_blobs(settings.blobs)
    taker = Taker(db, settings, blobs, make_importing(db, settings), resources, make_services(settings))
    return Scanner(db, settings, make_watches(settings), taker, worker=worker)


def make_builtins(db: Database, settings: Settings, registry: Registry) -> list[Handler]:
    """The handlers that every worker has, as its mill and its settings want them."""
    options = DistributionOptions(
        max_attempts=settings.distribution_max_attempts,
        backoff=settings.distribution_backoff_ms / 1000,
        seconds=settings.distribution_timeout_s,
        queries=max(1, settings.db_max_conns // 2),
    )
    declared = make_datasets(settings, registry)
    blobs, ttl = open_blobs(settings.blobs), settings.export_ttl_hours
    allowed = [Allowed.parse(entry) for entry in settings.remote_allow]
    return builtins(
        db,
        blobs,
        registry.normalizers,
        declared,
        options,
        export_ttl_hours=ttl,
        directory=Directory(load_services(settings.config), allowed=allowed, permits=registry.desk),
        retry=RetryPolicy(settings.max_attempts_error, settings.max_attempts_not_found),
    )


def make_context(db: Database, settings: Settings, registry: Registry, *, worker: str, book: Logbook) -> Context:
    handlers = registry.beside(make_builtins(db, settings, registry))
    declared = make_limiters(settings, registry)
    context = Context(db, settings, handlers, make_sources(settings), worker, book, limiters=declared)
    registry.desk.open(context.limits)
    return context


def run_in(settings: Settings, action: Callable[[Database], Awaitable[T]], **options: Any) -> T:
    """Run one action with a database, for entrances that are not async."""

    async def main() -> T:
        async with open_database(settings, **options) as db:
            return await action(db)

    return asyncio.run(main())
