"""The page of metrics that a worker serves."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tidemill.config import Settings
from tidemill.domain.errors import InvalidSettings
from tidemill.telemetry.endpoint import serving
from tidemill.telemetry.events import emit
from tidemill.telemetry.measure import measuring, metered
from tidemill.telemetry.metrics import Meter

HOST = "127.0.0.1"


async def ask(port: int, request: str) -> tuple[str, str]:
    """The head and the body of the answer to these bytes."""
    reader, writer = await asyncio.open_connection(HOST, port)
    writer.write(request.encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return head, body


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving(Meter(), HOST, 0, "/inner/metrics") as number:
        yield number


async def test_prometheus_gets_the_page(port: int) -> None:
    head, body = await ask(port, "GET /inner/metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
    assert f"Content-Length: {len(body)}" in head
    assert "# TYPE tidemill_items_total counter" in body


async def test_the_format_is_the_one_that_is_asked_for(port: int) -> None:
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
async def test_nothing_else_is_answered(port: int, request_line: str, status: int) -> None:
    head, body = await ask(port, f"{request_line}\r\nHost: x\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ")
    assert "tidemill_" not in body


async def test_who_comes_second_gets_the_next_port() -> None:
    async with (
        serving(Meter(), HOST, 0, "/metrics") as first,
        serving(Meter(), HOST, first, "/metrics") as second,
    ):
        assert first < second < first + 100
        assert (await ask(second, "GET /metrics HTTP/1.1\r\n\r\n"))[0].startswith("HTTP/1.1 200")


async def test_an_address_that_is_not_ours_stops_the_start() -> None:
    with pytest.raises(InvalidSettings, match=r"cannot serve metrics at 192\.0\.2\.1:9464"):
        async with serving(Meter(), "192.0.2.1", 9464, "/metrics"):
            pass


async def test_metrics_can_be_switched_off() -> None:
    settings = Settings(enable_metrics=False, metrics_port=0)
    with metered(settings) as meter:
        assert meter is None
    async with measuring(settings, {}) as environment:
        assert environment == {}


async def test_a_process_is_measured_as_long_as_it_is_asked_for() -> None:
    with metered(Settings()) as meter:
        assert meter is not None
        emit("pool.waited", ms=3)
    emit("pool.waited", ms=3)
    assert b"tidemill_pool_wait_ms_count 1.0" in meter.render()[0]
