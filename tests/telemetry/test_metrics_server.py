"""Tests of the metrics server of a worker."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidemill.config import Settings
from tidemill.core.errors import InvalidSettings
from tidemill.telemetry.events import emit
from tidemill.telemetry.metrics import MetricsSubscriber
from tidemill.telemetry.metrics_server import serve_metrics, serve_worker_metrics, subscribe_metrics_if_enabled

HOST = "127.0.0.1"


async def ask(port: int, request: str) -> tuple[str, str]:
    """Return the head and the body of the response to these bytes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request.encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head, body


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serve_metrics(MetricsSubscriber(), HOST, 0, "/inner/metrics") as number:
        yield number


async def test_metrics_server_returns_prometheus_text(port: int) -> None:
    head, body = await ask(port, "GET /inner/metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert f"Content-Length: {len(body)}" in head
    assert "# TYPE tidemill_items_total counter" in body


async def test_metrics_server_returns_openmetrics_when_accepted(port: int) -> None:
    asked = "GET /inner/metrics HTTP/1.1\r\naccept: application/openmetrics-text; version=1.0.0\r\n\r\n"
    head, body = await ask(port, asked)
    assert "Content-Type: application/openmetrics-text" in head
    assert body.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        ("POST /inner/metrics HTTP/1.1", 405),
        ("HEAD /inner/metrics HTTP/1.1", 405),
        ("GET /metrics HTTP/1.1", 404),
        ("GET / HTTP/1.1", 404),
        ("DELETE /inner HTTP/1.1", 404),
        ("nonsense", 400),
        ("", 400),
        ("GET /" + "x" * 100_000, 400),
    ],
)
async def test_metrics_server_rejects_other_methods_paths_and_garbage(
    port: int, request_line: str, status: int
) -> None:
    head, body = await ask(port, f"{request_line}\r\nHost: x\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "tidemill_" not in body


async def test_metrics_server_uses_next_port_when_port_is_taken() -> None:
    async with (
        serve_metrics(MetricsSubscriber(), HOST, 0, "/metrics") as first,
        serve_metrics(MetricsSubscriber(), HOST, first, "/metrics") as second,
    ):
        assert first < second < first + 100
        assert (await ask(second, "GET /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 200")


async def test_metrics_server_on_foreign_address_raises_invalid_settings() -> None:
    with pytest.raises(InvalidSettings, match=r"Cannot serve metrics at 192\.0\.2\.1:9464"):
        async with serve_metrics(MetricsSubscriber(), "192.0.2.1", 9464, "/metrics"):
            pass


async def test_metrics_are_not_collected_when_disabled() -> None:
    settings = Settings(enable_metrics=False, metrics_port=0)
    with subscribe_metrics_if_enabled(settings) as meter:
        assert meter is None
    async with serve_worker_metrics(settings, {}) as environment:
        assert environment == {}


async def test_metrics_are_collected_only_inside_context() -> None:
    with subscribe_metrics_if_enabled(Settings()) as meter:
        assert meter is not None
        emit("pool.waited", ms=3)
    emit("pool.waited", ms=3)
    assert b"tidemill_pool_wait_ms_count 1.0" in meter.render()[0]
