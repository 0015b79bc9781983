"""Tests of the metrics of the HTTP API: requests and queue depth."""

import httpx2
import pytest

from support import add_job, eventually
from telemetry.recorded_events import Told
from tidemill import Item, Mill
from tidemill.cli import http_server
from tidemill.config import Settings
from tidemill.store import workers
from tidemill.store.database import Database
from tidemill.telemetry.events import emit


@pytest.mark.parametrize("path", ["/metrics", "/inner/metrics"])
async def test_api_metrics_show_requests_and_queue_depth(
    settings: Settings, db: Database, told: Told, path: str
) -> None:
    await add_job(db, 10)
    settings = settings.model_copy(update={"http_port": 0, "metrics_path": path})
    listening = http_server.open_listen_socket(settings)
    async with (
        http_server.run_http_service(settings, listening),
        httpx2.AsyncClient(base_url=http_server.format_browser_url(listening)) as client,
    ):
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


async def test_api_metrics_label_throttles_with_provider_of_kind(settings: Settings, db: Database) -> None:
    settings = settings.model_copy(update={"http_port": 0})
    mill = Mill(settings)

    @mill.handler("ask", limit="shop")
    async def ask(_item: Item) -> None: ...

    mill.limiter("shop", "5/s")
    await db.run(workers.register_kinds, mill.registry.create_all())
    listening = http_server.open_listen_socket(settings)
    async with (
        http_server.run_http_service(settings, listening, mill=mill),
        httpx2.AsyncClient(base_url=http_server.format_browser_url(listening)) as client,
    ):
        for kind in ("ask", "of others"):
            emit("item.retry", job=None, batch=1, kind=kind, items=1, codes={"throttled": 1}, decisions=[])
        text = (await client.get("/metrics")).text
    assert 'tidemill_throttles_total{kind="ask",provider="shop"} 1.0' in text
    assert 'tidemill_throttles_total{kind="of others",provider="of others"} 1.0' in text


async def test_api_serves_no_metrics_when_disabled(settings: Settings, db: Database) -> None:
    settings = settings.model_copy(update={"http_port": 0, "enable_metrics": False})
    listening = http_server.open_listen_socket(settings)
    async with (
        http_server.run_http_service(settings, listening),
        httpx2.AsyncClient(base_url=http_server.format_browser_url(listening)) as client,
    ):
        assert (await client.get("/metrics")).status_code == 404
