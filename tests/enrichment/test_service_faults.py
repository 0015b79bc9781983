"""Services that throttle, fail, stall or return malformed responses: every row gets its own, correct outcome."""

import asyncio
import json
from collections.abc import Awaitable, Mapping
from typing import Any

import pytest

from enrichment.scenes import Row, Scene
from support import eventually
from support.reconciliation_services import Answer, Reply, Request, Scripted, echo, named, scripted, told
from tidemill.enrichment import reconciliation

NAMES = [f"name {number}" for number in range(20)]
OWN_DATE = "Mon, 16 Nov 2026 12:00:00 GMT"
LATER_DATE = "Mon, 16 Nov 2026 12:00:30 GMT"


def assert_own(rows: list[Row], names: list[str] = NAMES) -> None:
    """Assert that every row has the candidate for its own name."""
    assert [(row.status, row.result.get("id")) for row in rows] == [("done", f"id of {name}") for name in names]


async def test_rows_sharing_a_request_get_their_own_candidates(scene: Scene, service: Scripted) -> None:
    rows = await scene.match(NAMES)
    assert_own(rows)
    assert service.rows_asked == [10, 10]


async def test_service_concurrency_limits_open_requests(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, batch=1, concurrency=3)

    async def is_limit_reached() -> bool:
        return service.most_at_once >= 3

    async def answer(request: Request) -> Reply:
        await eventually(is_limit_reached, within=20)
        return echo(request)

    service.answer = answer
    assert_own(await scene.match(NAMES))
    assert service.most_at_once == 3


async def test_manifest_batch_size_limits_rows_per_request(scene: Scene, service: Scripted) -> None:
    async with scripted(lambda request: told({"batchSize": 4}) if request.method == "GET" else echo(request)) as other:
        (scene.settings.home / "tidemill.toml").write_text(
            f'[services.names]\nurl = "{other.url}"\nallow_private = true'
        )
        assert_own(await scene.match(NAMES))
        assert [request.method for request in other.requests].count("GET") == 1
        assert {len(request.queries) for request in other.requests if request.method == "POST"} == {4}


async def test_failed_manifest_request_is_retried_later(
    scene: Scene, service: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciliation, "MANIFEST_RETRY_S", 0.0)

    def answer(request: Request) -> Reply:
        if request.method == "POST":
            return echo(request)
        return Reply(500) if len(service.requests) == 1 else told({"batchSize": 4})

    service.answer = answer
    (scene.settings.home / "tidemill.toml").write_text(f'[services.names]\nurl = "{service.url}"\nallow_private = true')
    assert_own(await scene.match(NAMES))
    assert [request.method for request in service.requests].count("GET") == 2
    assert len(service.requests[-1].queries) <= 4


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry-After": "30"}, 30),
        (503, {"Retry-After": LATER_DATE, "Date": OWN_DATE}, 30),
        (429, {"Retry-After": "86400"}, 86_400),
        (429, {"Retry-After": "999999999"}, 7 * 86_400),
    ],
)
async def test_throttled_rows_wait_for_retry_after_without_using_attempts(
    scene: Scene, service: Scripted, status: int, headers: dict[str, str], seconds: float
) -> None:
    service.answer = lambda request: (
        Reply(status, b"slow down", headers) if len(service.requests) == 1 else echo(request)
    )
    job_id = await scene.submit([{"name": name} for name in NAMES[:10]])
    await scene.drain(retries=False)
    assert {row.status for row in await scene.rows(job_id)} == {"retry_wait"}
    assert abs(await scene.due_in(job_id) - seconds) < 5
    await scene.drain()
    rows = await scene.rows(job_id)
    assert_own(rows, NAMES[:10])
    assert {row.attempts for row in rows} == {1}


async def test_rejected_row_does_not_fail_other_rows_of_request(scene: Scene, service: Scripted) -> None:
    def answer(request: Request) -> Reply:
        poisoned = any(query["query"] == "name 7" for query in request.queries.values())
        return Reply(400) if poisoned else echo(request)

    service.answer = answer
    rows = await scene.match(NAMES[:10])
    bad = rows.pop(7)
    assert (bad.status, bad.error["code"], bad.attempts) == ("failed", "service_refused", 1)
    assert_own(rows, [name for name in NAMES[:10] if name != "name 7"])
    assert {row.attempts for row in rows} == {1}


async def test_row_causing_server_error_fails_alone_after_all_attempts(scene: Scene, service: Scripted) -> None:
    def answer(request: Request) -> Reply:
        return (
            Reply(500) if any(q["query"] in ("name 2", "name 8") for q in request.queries.values()) else echo(request)
        )

    service.answer = answer
    rows = await scene.match(NAMES[:10])
    bad = [rows[2], rows[8]]
    assert [(row.status, row.error["code"], row.attempts) for row in bad] == [("failed", "service_error", 3)] * 2
    assert_own(
        [row for row in rows if row not in bad], [name for name in NAMES[:10] if name not in ("name 2", "name 8")]
    )


async def test_service_outage_does_not_split_batch_into_single_rows(scene: Scene, service: Scripted) -> None:
    service.answer = lambda request: Reply(502) if len(service.requests) <= 3 else echo(request)
    assert_own(await scene.match(NAMES[:10]), NAMES[:10])
    assert service.rows_asked == [10, 5, 5, 10]


def by_name(answers: Mapping[str, Answer]) -> Answer:
    """Return an answer function that selects the answer by the name of the only row."""

    def answer(request: Request) -> Reply | Awaitable[Reply]:
        (query,) = request.queries.values()
        return answers[query["query"]](request)

    return answer


def _of(result: Any) -> Answer:
    return lambda request: told(dict.fromkeys(request.queries, result))


MALFORMED: dict[str, Answer] = {
    "HTML page": lambda _: Reply(200, b"<!DOCTYPE html><p>We are back soon"),
    "truncated": lambda request: Reply(200, echo(request).body[:-9]),
    "empty": lambda _: Reply(200, b""),
    "a list": lambda _: told([]),
    "other rows": lambda request: told({f"other {id_}": {"result": []} for id_ in request.queries}),
    "an error": lambda _: told({"status": "error", "message": "no"}),
    "no result": _of({}),
    "no list": _of({"result": {"id": "Q1"}}),
    "no id": _of({"result": [{"name": "x", "score": 1}]}),
    "score as text": _of({"result": [named("x", "87.5")]}),
    "score NaN": lambda request: Reply(
        200, json.dumps({id_: {"result": [named("x", float("nan"))]} for id_ in request.queries}).encode()
    ),
    "deeply nested": lambda _: Reply(200, b'{"q0":' + b"[" * 10_000),
    "compressed": lambda request: Reply(200, echo(request).body, {"Content-Encoding": "gzip"}),
}


async def test_malformed_answer_fails_row_as_invalid_answer(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, batch=1)
    service.answer = by_name(MALFORMED)
    for what, row in zip(MALFORMED, await scene.match(list(MALFORMED)), strict=True):
        assert (row.status, row.error["code"], row.attempts) == ("failed", "invalid_answer", 3), what
        assert row.error["retryable"]


async def test_row_missing_in_answer_is_retried(scene: Scene, service: Scripted) -> None:
    def answer(request: Request) -> Reply:
        reply = json.loads(echo(request).body)
        if len(service.requests) == 1:
            del reply["q3"], reply["q4"]
        return told(reply)

    service.answer = answer
    rows = await scene.match(NAMES[:10])
    assert_own(rows, NAMES[:10])
    assert [row.attempts for row in rows] == [1, 1, 1, 2, 2, 1, 1, 1, 1, 1]


async def test_swapped_answers_are_not_assigned_to_wrong_rows(scene: Scene, service: Scripted) -> None:
    """Two responses are swapped, as by a broken proxy: no row gets the candidate of another row."""
    replies: list[Reply] = []

    def answer(request: Request) -> Reply:
        replies.append(echo(request))
        return replies[-2] if len(replies) == 2 else replies[-1]

    service.answer = answer
    assert_own(await scene.match(NAMES))


BROKEN: dict[str, tuple[Answer, str]] = {
    "too large": (lambda _: Reply(200, b" " * (3 << 20)), "answer_too_large"),
    "too large, in pieces": (
        lambda _: Reply(
            raw=b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            + (b"80000\r\n" + b" " * (1 << 19) + b"\r\n") * 4
        ),
        "answer_too_large",
    ),
    "denied": (lambda _: Reply(401), "service_denied"),
    "not found": (lambda _: Reply(404), "service_refused"),
    "redirect loop": (lambda request: Reply(307, b"", {"Location": request.path}), "service_redirect"),
    "to a private address": (lambda _: Reply(307, b"", {"Location": "http://10.0.0.1/"}), "address_refused"),
    "to another port here": (lambda _: Reply(307, b"", {"Location": "http://127.0.0.1:9/"}), "address_refused"),
    "to the metadata of a cloud": (
        lambda _: Reply(302, b"", {"Location": "http://169.254.169.254/"}),
        "address_refused",
    ),
    "to a file": (lambda _: Reply(302, b"", {"Location": "file:///etc/passwd"}), "service_redirect"),
}


async def test_permanent_service_error_fails_row_without_retry(scene: Scene, service: Scripted) -> None:
    scene.declare("names", service.url, answer_mb=1, batch=1)
    service.answer = by_name({what: answer for what, (answer, _) in BROKEN.items()})
    for what, row in zip(BROKEN, await scene.match(list(BROKEN)), strict=True):
        assert (row.status, row.error["code"], row.attempts) == ("failed", BROKEN[what][1], 1), what


PASSING: dict[str, tuple[Answer, str, float]] = {  # name -> answer, error code, timeout in seconds
    "no response": (lambda _: Reply(200, b"{}", delay=5), "service_timeout", 0.5),
    "a broken connection": (
        lambda _: Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        "service_unreachable",
        20,
    ),
    "no HTTP": (lambda _: Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n"), "service_unreachable", 20),
}


async def test_transient_service_error_is_retried(scene: Scene, service: Scripted) -> None:
    for what, (service.answer, code, seconds) in PASSING.items():
        scene.declare("names", service.url, timeout=seconds, batch=1)
        (row,) = await scene.match([what])
        assert (row.status, row.error["code"], row.attempts) == ("failed", code, 3), what


async def test_answer_sent_byte_by_byte_times_out(scene: Scene) -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.02)
        except (ConnectionError, asyncio.IncompleteReadError):
            """The client closed the connection."""
        finally:
            writer.transport.abort()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        scene.declare("names", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", timeout=0.5)
        (row,) = await scene.match(["Ada"])
        assert row.error["code"] == "service_timeout"


async def test_unreachable_service_fails_row(scene: Scene, service: Scripted) -> None:
    scene.declare("names", "http://127.0.0.1:9/")
    (row,) = await scene.match(["Ada"])
    assert (row.status, row.error["code"]) == ("failed", "service_unreachable")
