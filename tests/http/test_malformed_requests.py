"""Malformed HTTP requests are rejected cheaply, and the connection is closed correctly."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2
import pytest

from jobs.test_job_control_routes import submitted
from jobs.test_submit_routes import files, nothing_left
from support import rows
from support.api import Api
from support.raw_http import Told, Wire, exchanged, is_dressed, is_problem, listening, wired
from tidemill.rest import request_body

HOST = "Host: tidemill"
JSON = "Content-Type: application/json"


@pytest.fixture(autouse=True)
def told() -> Iterator[Told]:
    with listening() as events:
        yield events
    assert [fields for name, fields in events if name == "request.failed"] == []


@pytest.fixture
def key(api: Api, ada: httpx2.AsyncClient) -> str:
    return f"Authorization: Bearer {api.keys['ada']}"


MALFORMED = [
    ["GET /v1/me HTTP/1.1", "Host : tidemill"],
    ["GET /v1/me HTTP/1.1"],
    ["GET /v1/me HTTP/1.1", HOST, "X-Request-ID: a\0b"],
    ["GET /v1/users/\xff HTTP/1.1", HOST],
    ["GET  HTTP/1.1", HOST],
    ["POST /v1/keys HTTP/1.1", HOST, "Content-Length: 2", "Content-Length: 3"],
    ["POST /v1/keys HTTP/1.1", HOST, "Content-Length: -1"],
    ["POST /v1/keys HTTP/1.1", HOST, "Content-Length: 1e3"],
    ["POST /v1/keys HTTP/1.1", HOST, "Content-Length: " + "9" * 40],
    ["POST /v1/keys HTTP/1.1", HOST, "Transfer-Encoding: xchunked"],
    ["POST /v1/keys HTTP/1.1", HOST, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
    ["GET /v1/me HTTP/1.1", HOST, "X-Long: " + "x" * 200_000],
    ["\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
]


async def test_malformed_http_request_is_rejected_with_problem_and_closed(api: Api, told: Told) -> None:
    for lines in MALFORMED:
        answer = await exchanged(api, *lines)
        assert answer.status_code == 400, lines
        assert is_problem(answer), answer.headers
        assert answer.headers["connection"] == "close"
    assert {fields["status"] for name, fields in told if name == "request.done"} == {400}


async def test_request_with_conflicting_lengths_is_rejected_without_smuggling(api: Api, key: str) -> None:
    hidden = f"GET /v1/me HTTP/1.1\r\n{HOST}\r\n{key}\r\n\r\n".encode()
    async with wired(api) as wire:
        head = [
            "POST /v1/keys HTTP/1.1",
            HOST,
            key,
            JSON,
            f"Content-Length: {len(hidden) + 5}",
            "Transfer-Encoding: chunked",
        ]
        await wire.send(*head, body=b"0\r\n\r\n" + hidden)
        answer = await wire.answer()
        assert (answer.status_code, is_problem(answer)) == (400, True)
        assert await wire.is_closed(), "the pipelined request gets no response"
    assert await rows(api.db, "SELECT count(*) FROM tidemill.api_key") == [(1,)]


async def test_malformed_chunk_is_rejected_and_connection_closed(api: Api, key: str) -> None:
    async with wired(api) as wire:
        await wire.send("POST /v1/keys HTTP/1.1", HOST, key, JSON, "Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n")
        assert (await wire.answer()).status_code == 400
        assert await wire.is_closed()


async def test_unsupported_method_returns_405_and_override_headers_are_ignored(
    api: Api, ada: httpx2.AsyncClient, key: str
) -> None:
    job = await submitted(ada, [1])
    for method in ("HEAD", "OPTIONS", "TRACE", "PUT", "PATCH", "PROPFIND", "GETX"):
        answer = await ada.request(method, f"/v1/jobs/{job}")
        assert answer.status_code == 405, method
        assert is_dressed(answer)
        assert set(answer.headers["allow"].split(", ")) == {"GET", "DELETE"}
        assert "authorization" not in answer.text.lower(), "the response does not repeat the input"
        assert "access-control-allow-origin" not in answer.headers
    overrides = dict.fromkeys(("X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"), "DELETE")
    assert (await ada.get(f"/v1/jobs/{job}", headers=overrides)).status_code == 200
    assert (await ada.post(f"/v1/jobs/{job}", headers=overrides)).status_code == 405
    assert (await ada.get(f"/v1/jobs/{job}")).json()["status"] == "pending", "the service still responds"


async def test_path_variants_are_not_normalized_to_existing_route(api: Api, key: str) -> None:
    for path in ("/v1/me/", "//v1/me", "/v1//me", "/v1/../v1/me", "/v1/./me", "/V1/me", "/v1/me%2f", "/v1/me;a=b", "*"):
        answer = await exchanged(api, f"GET {path} HTTP/1.1", HOST, key)
        assert (answer.status_code, is_problem(answer)) == (404, True), path
    assert (await exchanged(api, "GET /v1/%6de HTTP/1.1", HOST, key)).status_code == 200


async def test_rejected_request_body_is_drained_so_client_receives_response(api: Api) -> None:
    async with wired(api) as wire:
        await wire.send("POST /v1/jobs HTTP/1.1", HOST, JSON, "Content-Length: 400000", body=b"{" + b" " * 99_999)
        sending = asyncio.create_task(drip(wire, b" " * 30_000, times=10, every=0.02))
        answer = await wire.answer()
        assert (answer.status_code, answer.headers["connection"]) == (401, "close")
        await sending
        assert await wire.is_closed()


async def drip(wire: Wire, piece: bytes, *, times: int, every: float) -> None:
    for _ in range(times):
        wire.writer.write(piece)
        await wire.writer.drain()
        await asyncio.sleep(every)


async def test_stalled_request_body_times_out_with_408(api: Api, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_IDLE_TIMEOUT_S", 0.5)
    for path, kind in (("/v1/keys", JSON), ("/v1/jobs", JSON), ("/v1/jobs?kind=echo", "Content-Type: text/csv")):
        async with wired(api) as wire:
            await wire.send(f"POST {path} HTTP/1.1", HOST, key, kind, "Content-Length: 100", body=b"{")
            answer = await wire.answer()
            assert (answer.status_code, is_problem(answer)) == (408, True), path
    await nothing_left(api)


async def test_slow_request_body_times_out_with_408(api: Api, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "BODY_IDLE_TIMEOUT_S", 1.0)
    async with wired(api) as wire:
        await wire.send(
            "POST /v1/jobs?kind=echo HTTP/1.1", HOST, key, "Content-Type: text/csv", "Content-Length: 100000"
        )
        dripping = asyncio.create_task(drip(wire, b"x", times=1_000, every=0.05))
        assert (await wire.answer()).status_code == 408
        dripping.cancel()
    await nothing_left(api)


async def test_client_disconnect_during_upload_is_not_reported_as_server_error(api: Api, key: str, told: Told) -> None:
    for path, kind in (("/v1/keys", JSON), ("/v1/jobs", JSON), ("/v1/jobs?kind=echo", "Content-Type: text/csv")):
        async with wired(api) as wire:
            await wire.send(f"POST {path} HTTP/1.1", HOST, key, kind, "Content-Length: 100", body=b"{")
    await nothing_left(api)
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


TOO_LONG = [
    ("/v1/keys", JSON, "Content-Length: 5000"),
    ("/v1/keys", JSON, "Content-Length: 00000000000000005000"),
    ("/v1/jobs", JSON, "Content-Length: 99999999999999999999"),
    ("/v1/jobs", "Content-Type: APPLICATION/JSON", "Content-Length: 5000"),
    ("/v1/jobs?kind=echo", "Content-Type: text/csv", "Content-Length: 3000000"),
    ("/v1/jobs?kind=echo", "Content-Type: text/csv", "Content-Length: 99999999999999999999"),
]


async def test_request_with_oversized_content_length_is_rejected_unread(make_api: Callable[..., Any]) -> None:
    api = await make_api(max_json_bytes=1_000, max_file_size_mb=1)
    await api.user("ada")
    key = f"Authorization: Bearer {api.keys['ada']}"
    for path, kind, length in TOO_LONG:
        answer = await exchanged(api, f"POST {path} HTTP/1.1", HOST, key, kind, length)
        assert (answer.status_code, is_problem(answer)) == (413, True), f"{path} {length}"


async def test_chunked_body_over_limit_is_rejected_with_413(make_api: Callable[..., Any]) -> None:
    api = await make_api(max_json_bytes=1_000, max_file_size_mb=1)
    ada = await api.user("ada")

    async def pieces(piece: bytes, times: int) -> AsyncIterator[bytes]:
        for _ in range(times):
            yield piece

    form = "multipart/form-data; boundary=x"
    empty = b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n'
    for path, kind, piece, times in [
        ("/v1/keys", "application/json", b" " * 100, 20),
        ("/v1/jobs", "application/json", b" " * 100, 20),
        ("/v1/jobs", "Application/JSON; charset=utf-8", b" " * 100, 20),
        ("/v1/jobs?kind=echo", "text/csv", b"a" * 65_536, 20),
        ("/v1/jobs?kind=echo", form, empty * 100, 600),
        ("/v1/jobs?kind=echo", form, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"a" * 65_536, 20),
    ]:
        answer = await ada.post(path, content=pieces(piece, times), headers={"content-type": kind})
        assert answer.status_code == 413, f"{path} {kind}: {answer.text}"
    assert files(api.settings) == []
    assert await rows(api.db, "SELECT count(*) FROM tidemill.job") == [(0,)]


async def test_many_headers_are_accepted_and_malformed_session_cookie_is_401(
    api: Api, key: str, ada: httpx2.AsyncClient
) -> None:
    many = [f"X-{n}: 1" for n in range(2_000)]
    assert (await exchanged(api, "GET /v1/me HTTP/1.1", HOST, key, *many)).status_code == 200
    for cookie in (
        "tidemill_session=",
        'tidemill_session="\\377"; =; ;;;a',
        "tidemill_session=" + "x" * 30_000,
        "\xff=\xfe",
    ):
        answer = await exchanged(api, "GET /v1/me HTTP/1.1", HOST, f"Cookie: {cookie}")
        assert (answer.status_code, is_problem(answer)) == (401, True)
