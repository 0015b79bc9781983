"""The metrics of the HTTP API: its requests, and how much waits."""

import httpx2
import pytest

from support import add_job, eventually
from telemetry.hearing import Told
from tidemill.cli import serve
from tidemill.config import Settings
from tidemill.store.database import Database


@pytest.mark.parametrize("path", ["/metrics", "/inner/metrics"])
async def test_the_api_shows_its_requests_and_the_queue(
    settings: Settings, db: Database, told: Told, path: str
) -> None:
    await add_job(db, 10)
    settings = settings.model_copy(update={"http_port": 0, "metrics_path": path})
    listening = serve.listen(settings)
    async with serve.service(settings, listening), httpx2.AsyncClient(base_url=serve.address(listening)) as client:
        await client.get("/health", headers={"X-Request-ID": "abc-1"})

        async def shown() -> str | None:
            page = await client.get(path)
            assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
            return page.text if "tidemill_queue_depth{" in page.text else None

        text = await eventually(shown)
        assert text is not None
    assert 'tidemill_queue_depth{status="pending"} 10.0' in text
    assert 'tidemill_http_requests_total{method="GET",route="/health",status="200"} 1.0' in text
    assert told.of("request.done")[0]["request_id"] == "abc-1"


async def test_the_api_can_do_without(settings: Settings, db: Database) -> None:
    settings = settings.model_copy(update={"http_port": 0, "enable_metrics": False})
    listening = serve.listen(settings)
    async with serve.service(settings, listening), httpx2.AsyncClient(base_url=serve.address(listening)) as client:
        assert (await client.get("/metrics")).status_code == 404
