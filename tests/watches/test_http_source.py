"""HTTP sources with faulty servers and indexes."""

from collections.abc import Callable
from typing import Any

import pytest

from support import rows
from support.loopback_server import Request, Server
from tidemill.watches import watch_records
from tidemill.watches.file_state import FileState
from watches.scenes import ROWS, Scene
from watches.website import Web, allow

CSV = (ROWS.encode(), "1")


async def test_http_authorization_is_not_sent_to_other_servers_in_index(
    scene: Scene, web: tuple[Web, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, server = web
    other = Web()
    with Server(other.answer) as other_server:
        allow(scene, server, other_server)
        site.secret = "Bearer s3cr3t"
        site.files = {"/list.txt": (f"a.csv\n{other_server.url('/x.csv')}\n".encode(), "1"), "/a.csv": CSV}
        other.files = {"/x.csv": CSV}
        monkeypatch.setenv("WEB_TOKEN", site.secret)
        scene.declare("index = true", 'authorization_env = "WEB_TOKEN"', source=f'"{server.url("/list.txt")}"')
        assert (await scene.scan(times=2)).result.submitted == 2
    assert {authorization for _, authorization in other.asked} == {None}
    assert {authorization for _, authorization in site.asked} == {site.secret}


@pytest.mark.parametrize(
    ("index", "problem", "submitted"),
    [
        (b"http://[bad\na.csv\n", 'invalid URL: "http://[bad"', 1),
        (b'<a href="http://[">x</a><a href="a.csv">', 'invalid URL: "http://["', 1),
        (b"<![x[ foo", "not valid HTML", 0),
    ],
)
async def test_http_index_errors_are_reported_and_valid_entries_submitted(
    scene: Scene, web: tuple[Web, Server], index: bytes, problem: str, submitted: int
) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/list": (index, "1"), "/a.csv": CSV}
    scene.declare("index = true", source=f'"{server.url("/list")}"')
    result = (await scene.scan(times=2)).result
    assert problem in str(result.problem)
    assert result.submitted == submitted


async def test_http_file_with_impossible_size_is_refused(scene: Scene) -> None:
    def answer(request: Request) -> None:
        length = "99999999999999999999" if request.path == "/big.csv" else str(len(ROWS))
        request.answer("200 OK", f"Content-Length: {length}", 'ETag: "1"', body=ROWS.encode())

    with Server(answer) as server:
        allow(scene, server)
        scene.declare(source=f'["{server.url("/big.csv")}", "{server.url("/a.csv")}"]')
        assert (await scene.scan(times=2)).result.submitted == 1
        file = (await scene.files())[server.url("/big.csv")]
    assert file.state is FileState.REFUSED
    assert "invalid file size" in str(file.note)


async def test_unexpected_scan_error_is_reported_and_watch_lease_released(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise AssertionError("\udce9\0 unexpected")

    scene.declare()
    scene.put("a.csv")
    with monkeypatch.context() as patch:
        patch.setattr(watch_records, "record_new_and_changed_files", broken)
        await scene.scan()
    problem, lease = (await rows(scene.db, "SELECT problem, lease_id FROM tidemill.watch"))[0]
    assert (problem, lease) == ("Scan failed: AssertionError: \\udce9 unexpected", None)
    assert (await scene.scan(times=2)).result.submitted == 1


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "400 Bad Request"])
async def test_http_refused_links_do_not_stop_later_links(scene: Scene, web: tuple[Web, Server], status: str) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/list": (b"".join(b"bad%d.csv\n" % n for n in range(7)) + b"good.csv\n", "1"), "/good.csv": CSV}
    server.answer = refusing(site, status)
    scene.declare("index = true", source=f'"{server.url("/list")}"')
    result = (await scene.scan(times=2)).result
    assert (result.found, result.submitted) == (1, 1)
    assert "bad0.csv" in str(result.problem)


async def test_http_scan_stops_after_five_unavailable_files(scene: Scene, web: tuple[Web, Server]) -> None:
    site, server = web
    allow(scene, server)
    server.answer = refusing(site, "503 Service Unavailable")
    scene.declare(source=str([server.url(f"/{number}.csv") for number in range(9)]))
    await scene.scan()
    assert len(server.requests) == 5


def refusing(site: Web, status: str) -> Callable[[Request], None]:
    def answer(request: Request) -> None:
        if request.path in site.files:
            site.answer(request)
        else:
            request.answer(status, "Content-Length: 0")

    return answer
