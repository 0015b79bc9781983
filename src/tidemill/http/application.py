"""The FastAPI application."""

import os
from collections.abc import Callable, Mapping

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tidemill.app.build import (
    make_datasets,
    make_distribution_use_cases,
    make_import_use_cases,
    make_resources,
    make_service_use_cases,
    make_watch_scanner,
)
from tidemill.config import Settings
from tidemill.dispatch import routes as dispatch_routes
from tidemill.distributions import routes as distribution_routes
from tidemill.distributions.dataset import Dataset
from tidemill.enrichment import routes as enrichment_routes
from tidemill.exports import routes as export_routes
from tidemill.files.blobs import open_blob_store
from tidemill.http import identity_routes, openapi, system_routes
from tidemill.http.middleware import RequestMiddleware
from tidemill.imports import routes as import_routes
from tidemill.jobs import bulk_operation_routes, cross_job_routes, job_event_routes, resource_routes, submit_routes
from tidemill.jobs import routes as job_routes
from tidemill.limits import routes as limiter_routes
from tidemill.rest import auth, problems
from tidemill.rest.api_context import ApiContext, OnDemandPool
from tidemill.rest.rate_limit import RequestRateLimiter
from tidemill.store.database import Database
from tidemill.tables.resource_registry import ResourceRegistry
from tidemill.telemetry.metrics import MetricsSubscriber
from tidemill.watches import routes as watch_routes

ROUTERS = (
    *(system_routes.router, identity_routes.router),
    *(submit_routes.router, job_routes.router, job_routes.item_router, resource_routes.router),
    *(cross_job_routes.router, bulk_operation_routes.router, job_event_routes.router),
    *(import_routes.router, export_routes.router, distribution_routes.router),
    *(watch_routes.router, enrichment_routes.router, limiter_routes.router, dispatch_routes.router),
)
ROOT_ROUTERS = (system_routes.root, identity_routes.root)  # outside of /v1


def create_api(
    db: Database,
    settings: Settings,
    *,
    on_demand_pool: OnDemandPool | None = None,
    meter: MetricsSubscriber | None = None,
    resources: ResourceRegistry | None = None,
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
        description=openapi.API_DESCRIPTION,
        openapi_tags=openapi.API_TAGS,
        generate_unique_id_function=lambda route: route.name,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    rate = RequestRateLimiter(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
    blobs = open_blob_store(settings.blobs)
    importing = make_import_use_cases(db, settings)
    distributing = make_distribution_use_cases(settings, make_datasets(settings) if datasets is None else datasets)
    declared = resources or make_resources(settings)
    scanner = make_watch_scanner(db, settings, declared, worker=f"service-{os.getpid()}")
    parts = (
        rate,
        declared,
        importing,
        distributing,
        scanner,
        make_service_use_cases(settings),
        on_demand_pool,
        normalizers or {},
    )
    app.state.context = ApiContext(db, settings, blobs, *parts)
    problems.install_problem_handlers(app)
    for router in ROUTERS:
        auth.include_declared_router(app, router, "/v1")
    for router in ROOT_ROUTERS:
        auth.include_declared_router(app, router)
    if meter is not None:
        auth.include_declared_router(app, system_routes.make_metrics_router(meter, settings.metrics_path))
    openapi.install_openapi(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(openapi.RESPONSE_HEADERS),
        )
    app.add_middleware(RequestMiddleware, max_json_bytes=settings.max_json_bytes, max_row_bytes=settings.max_row_bytes)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[str(proxy) for proxy in settings.trusted_proxies])
    return app
