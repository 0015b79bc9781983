"""Builds the parts of a process from its settings and a mill's declarations."""

from collections.abc import Callable, Mapping
from functools import cache, partial

from tidemill.app.config_file import load_section
from tidemill.app.handler_registry import HandlerFactory, HandlerRegistry
from tidemill.config import Settings
from tidemill.core.allowed_hosts import AllowedHost
from tidemill.core.errors import InvalidInput
from tidemill.core.kinds import DISTRIBUTION_KIND, ENRICH_KIND, EXPORT_KIND, IMPORT_KIND, MATCH_KIND, Handler
from tidemill.core.policies import RetryPolicy
from tidemill.distributions.dataset import Dataset
from tidemill.distributions.distribution_request import ReusePolicy
from tidemill.distributions.handler import DistributionOptions, make_distribution_handler
from tidemill.distributions.use_cases import DistributionUseCases
from tidemill.engine.children.shared_state import SharedState
from tidemill.engine.context import EngineContext
from tidemill.enrichment.external_service import ExternalService
from tidemill.enrichment.handler import make_enrich_handler, make_match_handler
from tidemill.enrichment.service_client import ServiceClients
from tidemill.enrichment.use_cases import ServiceJobUseCases
from tidemill.exports.handler import make_export_handler
from tidemill.files.blobs import open_blob_store
from tidemill.files.layout import validate_layout
from tidemill.files.source_opener import SourceOpener
from tidemill.imports.handler import make_import_handler
from tidemill.imports.use_cases import ImportUseCases
from tidemill.limits.limiter import Limiter, check_limiters_declared
from tidemill.store.database import Database
from tidemill.tables.resource import BUILTIN_NORMALIZERS
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.watches.file_submitter import WatchFileSubmitter
from tidemill.watches.scanner import WatchScanner
from tidemill.watches.source_address import FolderAddress
from tidemill.watches.watch import Watch, find_overlaps


def make_source_opener(settings: Settings) -> SourceOpener:
    """What opens the files of jobs: stored ones, and remote ones that are fetched first."""

    def download_source(url: str, blob_id: str, should_continue: Callable[[], bool]) -> object:
        # Few processes ever fetch anything: the others are spared an HTTP client.
        from tidemill.files.remote.checked_connection import DownloadLimits  # noqa: PLC0415
        from tidemill.files.remote.downloader import Downloader  # noqa: PLC0415

        return Downloader(blobs, DownloadLimits.from_settings(settings)).download(
            url, blob_id, should_continue=should_continue
        )

    blobs, unpacked = open_blob_store(settings.blobs), settings.max_unpacked_mb << 20
    return SourceOpener(blobs, max_row_bytes=settings.max_row_bytes, max_unpacked_bytes=unpacked, fetch=download_source)


def make_resources(settings: Settings, registry: HandlerRegistry | None = None) -> ResourceRegistry:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    from tidemill.tables.config import parse_resource_declarations  # noqa: PLC0415  see below

    registry = registry or HandlerRegistry()
    parse = partial(parse_resource_declarations, normalizers=[*BUILTIN_NORMALIZERS, *registry.normalizers])
    return ResourceRegistry(load_section(settings.config, parse) | parse({"resources": registry.resources}))


def make_import_use_cases(db: Database, settings: Settings) -> ImportUseCases:
    return ImportUseCases(db, open_blob_store(settings.blobs), make_source_opener(settings))


def make_datasets(settings: Settings, registry: HandlerRegistry | None = None) -> dict[str, Dataset]:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    from tidemill.distributions.config import parse_datasets  # noqa: PLC0415

    registry = registry or HandlerRegistry()
    declared = parse_datasets({"datasets": registry.datasets}, registry.producers)
    return load_section(settings.config, parse_datasets) | declared


def make_limiters(settings: Settings, registry: HandlerRegistry) -> dict[str, Limiter]:
    """What is declared in the file of the settings, and in a mill; InvalidSettings with every mistake."""
    from tidemill.limits.config import parse_limiters  # noqa: PLC0415

    if registry.checked_limiters is not None:
        return registry.checked_limiters
    found = load_section(settings.config, parse_limiters) | parse_limiters({"limiters": registry.limiters})
    kinds = [(f"kind {handler.kind!r}", handler.limiter) for handler in registry.all()]
    called = [(f"service {service.name!r}", service.limit) for service in load_services(settings).values()]
    check_limiters_declared(found, [*kinds, *called])
    registry.checked_limiters = found
    return found


def make_distribution_use_cases(settings: Settings, declared: Mapping[str, Dataset]) -> DistributionUseCases:
    reuse = ReusePolicy(settings.reuse_enabled, settings.reuse_days)
    return DistributionUseCases(declared, reuse=reuse, max_inputs=settings.max_distribution_inputs)


def load_services(settings: Settings) -> dict[str, ExternalService]:
    """What is declared in the file of the settings; InvalidSettings with every mistake."""
    from tidemill.enrichment.config import parse_services  # noqa: PLC0415

    return load_section(settings.config, parse_services)


def make_service_use_cases(settings: Settings) -> ServiceJobUseCases:
    return ServiceJobUseCases(load_services(settings))


def make_watches(settings: Settings) -> dict[str, Watch]:
    """What the file of the settings declares; InvalidSettings with all that does not fit the other settings."""
    from tidemill.config_sections import raise_if_invalid  # noqa: PLC0415
    from tidemill.watches.config import parse_watches  # noqa: PLC0415

    declared, problems = load_section(settings.config, parse_watches), []
    for one in declared.values():
        source = one.source
        if isinstance(source, FolderAddress) and source.root not in settings.sources:
            known = ", ".join(sorted(settings.sources)) or "none"
            problems.append(f"watches.{one.name}.source: TIDEMILL_SOURCES has no {source.root!r}; it has: {known}")
        try:
            validate_layout(dict(one.layout))
        except InvalidInput as error:
            problems.append(f"watches.{one.name}.layout: {error}")
    folders = {
        one.name: (settings.sources[one.source.root] / one.source.path).resolve()
        for one in declared.values()
        if isinstance(one.source, FolderAddress) and one.source.root in settings.sources
    }
    problems += find_overlaps(declared.values(), folders)
    raise_if_invalid("watches", problems)
    return declared


def make_watch_scanner(db: Database, settings: Settings, resources: ResourceRegistry, *, worker: str) -> WatchScanner:
    blobs = open_blob_store(settings.blobs)
    taker = WatchFileSubmitter(
        db, settings, blobs, make_import_use_cases(db, settings), resources, make_service_use_cases(settings)
    )
    return WatchScanner(db, settings, make_watches(settings), taker, worker=worker)


def make_builtin_handlers(db: Database, settings: Settings, registry: HandlerRegistry) -> dict[str, HandlerFactory]:
    """Kind -> what makes the handler that every worker has, as its mill and its settings want it."""
    blobs = open_blob_store(settings.blobs)

    def make_distribution() -> Handler:
        options = DistributionOptions(
            max_attempts=settings.distribution_max_attempts,
            backoff=settings.distribution_backoff_ms / 1000,
            timeout_s=settings.distribution_timeout_s,
            max_queries=max(1, settings.db_max_conns // 2),
        )
        return make_distribution_handler(db, blobs, make_datasets(settings, registry), options)

    @cache
    def make_clients() -> ServiceClients:
        allowed = [AllowedHost.parse(entry) for entry in settings.remote_allow]
        return ServiceClients(load_services(settings), allowed=allowed, permits=registry.limiter_handle)

    def make_retry_policy() -> RetryPolicy:
        return RetryPolicy(settings.max_attempts_error, settings.max_attempts_not_found)

    return {
        EXPORT_KIND: lambda: make_export_handler(db, blobs, ttl_hours=settings.export_ttl_hours),
        IMPORT_KIND: lambda: make_import_handler(registry.normalizers),
        DISTRIBUTION_KIND: make_distribution,
        MATCH_KIND: lambda: make_match_handler(db, make_clients(), make_retry_policy()),
        ENRICH_KIND: lambda: make_enrich_handler(db, make_clients(), make_retry_policy()),
    }


def make_engine_context(
    db: Database, settings: Settings, registry: HandlerRegistry, *, worker: str, shared_state: SharedState
) -> EngineContext:
    handlers = registry.with_builtins(make_builtin_handlers(db, settings, registry))
    declared = make_limiters(settings, registry)
    context = EngineContext(
        db, settings, handlers, make_source_opener(settings), worker, shared_state, declared_limiters=declared
    )
    registry.limiter_handle.bind(context.limiter_registry)
    return context
