"""Is it well, who am I, what may I do."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Response

from tidemill.api.guard import Guarded, Me, Permission, allow
from tidemill.api.schemas.identity import MeOut
from tidemill.api.schemas.service import Front, Health, Limits, WorkerOut
from tidemill.api.state import Db, Serving
from tidemill.operations import health
from tidemill.store import workers

root = APIRouter(tags=["service"], route_class=Guarded)
router = APIRouter(tags=["service"], route_class=Guarded)
_unfit: dict[int | str, dict[str, Any]] = {503: {"description": "Not fit to work", "model": Health}}


@router.get("", **allow(Permission.PUBLIC))
async def get_front() -> Front:
    """What this is, and where to go on."""
    return Front(service="tidemill", version=version("tidemill"), openapi="/v1/openapi.json", health="/health")


@root.get("/health", **allow(Permission.PUBLIC, also=_unfit))
async def get_health(response: Response, here: Serving) -> Health:
    """Whether the database answers, its schema is ours, somebody works, and how long work waits. 503 if unfit."""
    found = await health.examine(here.db)
    response.status_code = 200 if found.is_fit else 503
    return Health.model_validate(asdict(found) | {"status": found.status, "reasons": found.reasons})


@router.get("/me", **allow(Permission.USER))
async def get_me(me: Me) -> MeOut:
    """Who this key or session is."""
    return MeOut(user_id=me.user_id, name=me.name, role=me.role, by=me.by, csrf_token=me.csrf)


@router.get("/limits", **allow(Permission.USER))
async def get_limits(here: Serving) -> Limits:
    """What a request may be."""
    settings = here.settings
    return Limits(
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


@router.get("/workers", **allow(Permission.ADMIN))
async def list_workers(db: Db) -> list[WorkerOut]:
    """Who is at work, and what they have settled on."""
    return [WorkerOut.model_validate(worker, from_attributes=True) for worker in await db.run(workers.list_workers)]
