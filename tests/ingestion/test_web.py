"""Files of the web whose servers, and indexes, are not what one hopes for."""

from collections.abc import Callable
from typing import Any

import pytest

from connectors.servers import Request, Server
from ingestion.scenes import ROWS, Scene
from ingestion.web import Web, allow
from support import rows
from tidemill.domain.watching import FileState
from tidemill.store import watch_files

CSV = (ROWS.encode(), "1")


async def test_an_authorization_goes_to_no_other_server_that_an_index_names(
    scene: Scene, web: tuple[Web, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    site, server = web
    other = Web()
    with Server(other.answer) as stranger:
        allow(scene, server, stranger)
        site.secret = "Bearer s3cr3t"
        site.files = {"/list.txt": (f"a.csv\n{stranger.url('/x.csv')}\n".encode(), "1"), "/a.csv": CSV}
        other.files = {"/x.csv": CSV}
        monkeypatch.setenv("WEB_TOKEN", site.secret)
        scene.declare("index = true", 'authorization_env = "WEB_TOKEN"', source=f'"{server.url("/list.txt")}"')
        assert (await scene.scan(times=2)).came.submitted == 2
    assert {heard for _, heard in other.asked} == {None}
    assert {heard for _, heard in site.asked} == {site.secret}


@pytest.mark.parametrize(
    ("index", "problem", "submitted"),
    [
        (b"http://[bad\na.csv\n", "no URL: http://[bad", 1),
        (b'<a href="http://[">x</a><a href="a.csv">', "no URL: http://[", 1),
        (b"<![x[ foo", "begins like a page", 0),
    ],
)
async def test_what_is_wrong_with_an_index_is_said_and_the_rest_is_taken(
    scene: Scene, web: tuple[Web, Server], index: bytes, problem: str, submitted: int
) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/list": (index, "1"), "/a.csv": CSV}
    scene.declare("index = true", source=f'"{server.url("/list")}"')
    came = (await scene.scan(times=2)).came
    assert problem in str(came.problem)
    assert came.submitted == submitted


async def test_a_size_that_no_file_has_is_refused_with_its_file(scene: Scene) -> None:
    def answer(request: Request) -> None:
        length = "99999999999999999999" if request.path == "/big.csv" else str(len(ROWS))
        request.answer("200 OK", f"Content-Length: {length}", 'ETag: "1"', body=ROWS.encode())

    with Server(answer) as server:
        allow(scene, server)
        scene.declare(source=f'["{server.url("/big.csv")}", "{server.url("/a.csv")}"]')
        assert (await scene.scan(times=2)).came.submitted == 1
        file = (await scene.files())[server.url("/big.csv")]
    assert file.state is FileState.REFUSED
    assert "a size that cannot be" in str(file.note)


async def test_what_nobody_has_thought_of_is_said_of_the_watch_which_is_free_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> None:
        raise AssertionError("\udce9\0 what now?")

    scene.declare()
    scene.put("a.csv")
    with monkeypatch.context() as patch:
        patch.setattr(watch_files, "note", broken)
        await scene.scan()
    problem, lease = (await rows(scene.db, "SELECT problem, lease_id FROM tidemill.watch"))[0]
    assert (problem, lease) == ("the scan broke off: AssertionError: \\udce9 what now?", None)
    assert (await scene.scan(times=2)).came.submitted == 1


@pytest.mark.parametrize("status", ["403 Forbidden", "404 Not Found", "400 Bad Request"])
async def test_however_many_links_are_refused_those_behind_them_are_looked_at(
    scene: Scene, web: tuple[Web, Server], status: str
) -> None:
    site, server = web
    allow(scene, server)
    site.files = {"/list": (b"".join(b"bad%d.csv\n" % n for n in range(7)) + b"good.csv\n", "1"), "/good.csv": CSV}
    server.answer = refusing(site, status)
    scene.declare("index = true", source=f'"{server.url("/list")}"')
    came = (await scene.scan(times=2)).came
    assert (came.found, came.submitted) == (1, 1)
    assert "bad0.csv" in str(came.problem)


async def test_when_nobody_answers_for_several_files_the_others_are_for_the_next_scan(
    scene: Scene, web: tuple[Web, Server]
) -> None:
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
