"""The FastAPI application."""

from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from tidemill.api import guard, problems
from tidemill.api.middleware import Entrance
from tidemill.api.rate import RateLimit
from tidemill.api.routes import (
    across,
    events,
    exports,
    identity,
    items,
    jobs,
    kickoff,
    metrics,
    operations,
    submit,
    system,
)
from tidemill.api.schemas import JobIn
from tidemill.api.state import Pool, Service
from tidemill.config import Settings
from tidemill.connectors.blobs import Blobs
from tidemill.store.database import Database
from tidemill.telemetry.metrics import Meter

ROUTERS = (system, identity, submit, jobs, items, kickoff, exports, across, operations, events)
DESCRIPTION = """
Every row is stored first, then processed from the database by workers that may crash, pause and scale.

Sign requests with `Authorization: Bearer tm_…`. Lists come in pages: ask for the next with `after=next_page`.
Names are snake_case; requests also accept camelCase. Errors are problem documents (RFC 9457) with the request's id.
"""


def create(db: Database, settings: Settings, *, pool: Pool | None = None, meter: Meter | None = None) -> FastAPI:
    """The service. ``pool`` is where kickoffs run, ``meter`` what /metrics shows; each may be missing."""
    app = FastAPI(
        title="Tidemill",
        version="1",
        description=DESCRIPTION,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    rate = RateLimit(rate=settings.rate_limit_per_s, burst=settings.rate_limit_burst)
    app.state.service = Service(db, settings, Blobs(settings.blobs), rate, pool)
    problems.install(app)
    for module in ROUTERS:
        guard.include(app, module.router, "/v1")
        if hasattr(module, "root"):
            guard.include(app, module.root)
    if meter is not None:
        guard.include(app, metrics.router_of(meter, settings.metrics_path))
    _describe(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(Entrance, max_json_bytes=settings.max_json_bytes)
    return app


def _describe(app: FastAPI) -> None:
    """What the routes do not say themselves: the shape of errors, of bodies read as a stream, and of keys."""
    document = app.openapi()
    schemas: dict[str, Any] = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (problems.Problem, JobIn):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {}) | {model.__name__: schema}
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    document["components"]["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key"},
        "session": {"type": "apiKey", "in": "cookie", "name": guard.COOKIE},
    }
    document["security"] = [{"key": []}, {"session": []}]
