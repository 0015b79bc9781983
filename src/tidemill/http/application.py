"""The FastAPI application."""

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tidemill.accounts import routes as account_routes
from tidemill.dispatch import routes as dispatch_routes
from tidemill.features import import_object
from tidemill.http import openapi, resource_routes, system_routes
from tidemill.http.middleware import RequestMiddleware
from tidemill.jobs import bulk_operation_routes, cross_job_routes, job_event_routes
from tidemill.jobs import routes as job_routes
from tidemill.jobs.submission import make_kind_grants
from tidemill.limits import routes as limiter_routes
from tidemill.rest import auth, problems
from tidemill.runtime import Runtime
from tidemill.tables.resource_registry import make_resource_registry
from tidemill.telemetry.metrics import MetricsSubscriber

API_PREFIX = "/v1"
CORE_ROUTERS = (
    *(system_routes.router, account_routes.router),
    *(job_routes.submit_router, job_routes.router, job_routes.item_router, resource_routes.router),
    *(cross_job_routes.router, bulk_operation_routes.router, job_event_routes.router),
    *(limiter_routes.router, dispatch_routes.router),
)
ROOT_ROUTERS = (system_routes.root, account_routes.root)  # not under /v1


def create_api(runtime: Runtime, *, meter: MetricsSubscriber | None = None) -> FastAPI:
    """Return the HTTP API with the routes of all enabled features; ``meter`` provides ``/metrics``.

    Raises:
        InvalidSettings: A declaration in ``tidemill.toml`` or in the mill is invalid.
    """
    settings = runtime.settings
    runtime.get(make_resource_registry)
    runtime.get(make_kind_grants)
    runtime.check_declarations()
    app = FastAPI(
        title="Tidemill",
        version="1",
        description=openapi.API_DESCRIPTION,
        openapi_tags=openapi.list_tags(runtime.features),
        generate_unique_id_function=lambda route: route.name,
        openapi_url=f"{API_PREFIX}/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.runtime = runtime
    problems.install_problem_handlers(app)
    for router in CORE_ROUTERS:
        auth.include_router_with_permissions(app, router, API_PREFIX)
    for feature in runtime.features:
        for name in feature.routers:
            auth.include_router_with_permissions(app, import_object(name), API_PREFIX)
    for router in ROOT_ROUTERS:
        auth.include_router_with_permissions(app, router)
    if meter is not None:
        auth.include_router_with_permissions(app, system_routes.make_metrics_router(meter, settings.metrics_path))
    openapi.install_openapi(app, runtime.features)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=list(openapi.RESPONSE_HEADERS),
        )
    app.add_middleware(RequestMiddleware)
    if settings.trusted_proxies:
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=[str(proxy) for proxy in settings.trusted_proxies])
    return app
