"""What Prometheus asks for."""

from typing import Any

from fastapi import APIRouter, Request, Response

from tidemill.api.guard import Guarded, Permission, allow
from tidemill.telemetry.metrics import Meter

_TEXT = {"schema": {"type": "string"}}
_page: dict[int | str, dict[str, Any]] = {
    200: {"description": "Metrics", "content": {"text/plain": _TEXT, "application/openmetrics-text": _TEXT}}
}


def router_of(meter: Meter, path: str) -> APIRouter:
    router = APIRouter(tags=["service"], route_class=Guarded)

    @router.get(path, response_class=Response, **allow(Permission.PUBLIC, also=_page))
    async def get_metrics(request: Request) -> Response:
        """Metrics of this process and its children; no names of users or jobs are in them."""
        body, content_type = meter.render(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return router
