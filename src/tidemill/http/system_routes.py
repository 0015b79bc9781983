"""Routes of the service: health, current user, request limits, workers and metrics."""

from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.accounts import use_cases as accounts
from tidemill.accounts.routes import MeOut, QuotaOut, build_quota_out
from tidemill.config import list_allowed_sources
from tidemill.jobs import administration
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.dependencies import DatabaseDep, RuntimeDep
from tidemill.telemetry.metrics import MetricsSubscriber

HealthStatus = TypeAliasType("HealthStatus", Literal["ok", "degraded", "unfit"])


class ApiIndexOut(BaseModel):
    """Name and version of the service, and links."""

    service: str
    version: str
    openapi: str
    health: str


class HealthOut(BaseModel):
    """Health of the service. `degraded`: it works, but an operator should check the reasons."""

    status: HealthStatus
    database: str = Field(description="`ok`, or the problem")
    migrations: str = Field(description="`ok`, or the problem")
    workers: int = Field(description="Workers with a heartbeat in the last 30 s")
    open_jobs: int
    queue_age_s: float = Field(
        description="How long the oldest due batch, or the oldest file that no worker is reading, has waited"
    )
    reasons: list[str] = Field(description="Why the status is not `ok`")
    broker: str | None = Field(
        description="`ok`, or `lost` if it is unreachable and workers poll the database; null without a broker"
    )
    outbox: int = Field(description="Number of hints that wait to be sent to the broker")
    outbox_age_s: float = Field(description="Age of the oldest waiting hint")
    quarantined: int = Field(description="Number of quarantined broker messages, which an admin should check")


class RequestLimitsOut(BaseModel):
    """Request limits. The service rejects a larger body with 413 and a larger row with 422."""

    max_file_size_mb: int
    max_json_bytes: int
    max_row_bytes: int
    max_inline_inputs: int = Field(description="Maximum inputs in a JSON body; send more as a file")
    rate_limit_per_s: int
    rate_limit_burst: int
    max_concurrent_jobs: int = Field(description="Maximum concurrently running jobs per user; further jobs wait")
    max_distribution_inputs: int
    sources: list[str] = Field(description="Folder names for the `source` of a submission")
    pending_dashboard: bool
    features: list[str] = Field(description="Enabled features, such as `imports`")
    quota: QuotaOut = Field(description="Your quotas")


class WorkerOut(BaseModel):
    """A worker: a parent process and its child processes."""

    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    silent_s: float
    in_hand: int = Field(description="Number of items that the worker has leased")
    info: dict[str, Any] = Field(description="The worker's kinds and processes, and how it adapts to the load")


root = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
router = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
_UNFIT_RESPONSE: dict[int | str, dict[str, Any]] = {
    503: {"description": "The database is unreachable or its schema is not current", "model": HealthOut}
}


@router.get("", **build_route_options(Permission.PUBLIC))
async def get_front() -> ApiIndexOut:
    """Get the service's name, version and links."""
    return ApiIndexOut(service="tidemill", version=version("tidemill"), openapi="/v1/openapi.json", health="/health")


@root.get("/health", **build_route_options(Permission.PUBLIC, extra_responses=_UNFIT_RESPONSE))
async def get_health(response: Response, runtime: RuntimeDep) -> HealthOut:
    """Check the database, its schema, the workers and the queue. The status is 503 if the service cannot run jobs."""
    health = await administration.check_health(runtime.db)
    response.status_code = 200 if health.is_operational else 503
    return HealthOut.model_validate(asdict(health) | {"status": health.status, "reasons": health.reasons})


@router.get("/me", **build_route_options(Permission.USER))
async def get_me(me: CurrentUser) -> MeOut:
    """Get the user that this API key or session belongs to."""
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)


@router.get("/limits", **build_route_options(Permission.USER))
async def get_limits(me: CurrentUser, runtime: RuntimeDep) -> RequestLimitsOut:
    """Get the request limits and your quotas."""
    settings = runtime.settings
    return RequestLimitsOut(
        max_file_size_mb=settings.max_file_size_mb,
        max_json_bytes=settings.max_json_bytes,
        max_row_bytes=settings.max_row_bytes,
        max_inline_inputs=settings.max_inline_inputs,
        rate_limit_per_s=settings.rate_limit_per_s,
        rate_limit_burst=settings.rate_limit_burst,
        max_concurrent_jobs=settings.max_concurrent_jobs,
        max_distribution_inputs=settings.max_distribution_inputs,
        sources=list_allowed_sources(settings.sources, me.role),
        pending_dashboard=settings.pending_dashboard,
        features=sorted(feature.name for feature in runtime.features),
        quota=build_quota_out(*await accounts.load_quota(runtime, me.user_id)),
    )


@router.get("/workers", **build_route_options(Permission.ADMIN))
async def list_workers(db: DatabaseDep) -> list[WorkerOut]:
    """List the workers and how each adapts to the load."""
    return [WorkerOut.model_validate(worker, from_attributes=True) for worker in await administration.list_workers(db)]


_TEXT_CONTENT = {"schema": {"type": "string"}}
_METRICS_RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Metrics",
        "content": {"text/plain": _TEXT_CONTENT, "application/openmetrics-text": _TEXT_CONTENT},
    }
}


def make_metrics_router(meter: MetricsSubscriber, path: str) -> APIRouter:
    router = APIRouter(tags=["service"], route_class=AuthenticatedRoute)

    @router.get(
        path, response_class=Response, **build_route_options(Permission.PUBLIC, extra_responses=_METRICS_RESPONSE)
    )
    async def get_metrics(request: Request) -> Response:
        """Get Prometheus metrics of this process and its children. They contain no names of users or jobs."""
        body, content_type = meter.render(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return router
