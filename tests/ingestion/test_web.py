"""Files of the web whose servers, and indexes, are not what one hopes for."""

import pytest

from connectors.servers import Server
from ingestion.scenes import ROWS, Scene
from ingestion.web import Web, allow

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
