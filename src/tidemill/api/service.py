"""The FastAPI application."""

import os
from collections.abc import Callable, Mapping

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tidemill.api import document, guard, problems
from tidemill.api.middleware import Entrance
from tidemill.api.rate import RateLimit
from tidemill.api.routes import (
    across,
    declared_resources,
    distributions,
    events,
    export_tables,
    exports,
    identity,
    import_errors,
    imports,
    items,
    jobs,
    kickoff,
    limiters,
    metrics,
    operations,
    quarantine,
    services,
    sources,
    submit,
    submit_import,
    system,
)
from tidemill.api.state import Pool, Service
from tidemill.app import make_datasets, make_distributions, make_importing, make_resources, make_scanner, make_services
from tidemill.config import Settings
from tidemill.connectors.blobs import open_blobs
from tidemill.domain.distribution import Dataset
from tidemill.operations.resources import Resources
from tidemill.store.database import Database
from tidemill.telemetry.metrics import Meter

ROUTERS = (
    *(system, identity, submit, jobs, items, kickoff, exports, declared_resources, export_tables, submit_import),
    *(imports, import_errors, distributions, sources, services, limiters, across, operations, events, quarantine),
)


def create(
    db: Database,
    settings: Settings,
    *,
    pool: Pool | None = None,
    meter: Meter | None = None,
    resources: Resources | None = None,
    normalizers: Mapping[str, Callable[[str], str]] | None = None,
    datasets: Mapping[str, Dataset] | None = None,
) -> FastAPI:
    """The service. ``pool`` is where kickoffs run, ``meter`` what /metrics shows; each may be missing.

    ``resources`` are what may be imported into; without them, what the settings' file declares. ``normalizers`` are
    what their fields may name beside the built-in ones. ``datasets`` are what may be distributed; likewise.
    """
    app = FastAPI(
        title="Tidemill",
        version="1",
        description=document.DESCRIPTION,
        openapi_tags=document.TAGS,
        generate_unique_id_function=lambda route: route.name,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    rate = RateLimit(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
    blobs = open_blobs(settings.blobs)
    importing = make_importing(db, settings)
    distributing = make_distributions(settings, make_datasets(settings) if datasets is None else datasets)
    declared = resources or make_resources(settings)
    scanner = make_scanner(db, settings, declared, worker=f"service-{os.getpid()}")
    parts = (rate, declared, importing, distributing, scanner, make_services(settings), pool, normalizers or {})
    app.state.service = Service(db, settings, blobs, *parts)
    problems.install(app)
    for module in ROUTERS:
        guard.include(app, module.router, "/v1")
        if hasattr(module, "root"):
            guard.include(app, module.root)
    if meter is not None:
        guard.include(app, metrics.router_of(meter, settings.metrics_path))
    document.complete(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(document.HEADERS),
        )
    app.add_middleware(Entrance, max_json_bytes=settings.max_json_bytes, max_row_bytes=settings.max_row_bytes)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[str(proxy) for proxy in settings.trusted_proxies])
    return app
