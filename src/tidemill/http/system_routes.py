"""The service itself: its health, the current user, limits of requests, workers and metrics."""

from dataclasses import asdict
from datetime import datetime
from importlib.metadata import version
from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field
from typing_extensions import TypeAliasType

from tidemill.accounts.routes import MeOut
from tidemill.jobs import administration
from tidemill.rest.auth import AuthenticatedRoute, CurrentUser, Permission, build_route_options
from tidemill.rest.runtime_dependencies import DatabaseDep, RuntimeDep
from tidemill.telemetry.metrics import MetricsSubscriber

HealthStatus = TypeAliasType("HealthStatus", Literal["ok", "degraded", "unfit"])


class ApiIndexOut(BaseModel):
    """What this is, and where to go on."""

    service: str
    version: str
    openapi: str
    health: str


class HealthOut(BaseModel):
    """Degraded: it works, and somebody should look."""

    status: HealthStatus
    database: str = Field(description="`ok`, or what is wrong")
    migrations: str = Field(description="`ok`, or what is wrong")
    workers: int = Field(description="That were heard of in the last half minute")
    open_jobs: int
    queue_age_s: float = Field(
        description="How long the oldest batch that is due, or source that nobody reads, has waited"
    )
    reasons: list[str] = Field(description="Why it is degraded")
    broker: str | None = Field(
        description="`ok` or `lost`, in which case work goes on by polling; null if there is none"
    )
    outbox: int = Field(description="Hints that wait for the broker")
    outbox_age_s: float = Field(description="How long the oldest of them has waited")
    quarantined: int = Field(description="Messages that are no hints, for an admin to look at")


class RequestLimitsOut(BaseModel):
    """What a request may be. Beyond the size of a body it is refused as 413, of a row as 422."""

    max_file_size_mb: int
    max_json_bytes: int
    max_row_bytes: int
    max_inline_inputs: int = Field(description="Of a submission as JSON; more come as a file")
    rate_limit_per_s: int
    rate_limit_burst: int
    max_concurrent_jobs: int = Field(description="Jobs of one user that turn at the same time; others wait")
    max_distribution_inputs: int
    sources: list[str] = Field(description="Names that a submission's source may have")
    pending_dashboard: bool


class WorkerOut(BaseModel):
    """A parent process and its children."""

    id: str
    host: str
    pid: int
    started_at: datetime
    seen_at: datetime
    silent_s: float
    in_hand: int = Field(description="Items that it has leased")
    info: dict[str, Any] = Field(description="Its kinds and processes, and what they have settled on")


root = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
router = APIRouter(tags=["service"], route_class=AuthenticatedRoute)
_UNFIT_RESPONSE: dict[int | str, dict[str, Any]] = {503: {"description": "Not fit to work", "model": HealthOut}}


@router.get("", **build_route_options(Permission.PUBLIC))
async def get_front() -> ApiIndexOut:
    """What this is, and where to go on."""
    return ApiIndexOut(service="tidemill", version=version("tidemill"), openapi="/v1/openapi.json", health="/health")


@root.get("/health", **build_route_options(Permission.PUBLIC, extra_responses=_UNFIT_RESPONSE))
async def get_health(response: Response, runtime: RuntimeDep) -> HealthOut:
    """Whether the database answers, its schema is ours, somebody works, and how long work waits. 503 if unfit."""
    found = await administration.check_health(runtime.db)
    response.status_code = 200 if found.is_operational else 503
    return HealthOut.model_validate(asdict(found) | {"status": found.status, "reasons": found.degraded_reasons})


@router.get("/me", **build_route_options(Permission.USER))
async def get_me(me: CurrentUser) -> MeOut:
    """Who this key or session is."""
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)


@router.get("/limits", **build_route_options(Permission.USER))
async def get_limits(runtime: RuntimeDep) -> RequestLimitsOut:
    """What a request may be."""
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
        sources=sorted(settings.sources),
        pending_dashboard=settings.pending_dashboard,
    )


@router.get("/workers", **build_route_options(Permission.ADMIN))
async def list_workers(db: DatabaseDep) -> list[WorkerOut]:
    """Who is at work, and what they have settled on."""
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
        """Metrics of this process and its children; no names of users or jobs are in them."""
        body, content_type = meter.render(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return router
