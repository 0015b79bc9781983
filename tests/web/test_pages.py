"""The page for every path outside of the API, its static files, and its security headers."""

import re

import httpx2
import pytest
from fastapi import FastAPI

from tidemill.app.runtime_factory import make_runtime
from tidemill.config import Settings
from tidemill.http.application import create_api
from tidemill.store.database import Database
from tidemill.web import pages
from tidemill.web.pages import install_pages


@pytest.fixture(scope="module")
def app() -> FastAPI:
    made = create_api(make_runtime(Database("postgresql://nowhere"), Settings(home="/nowhere")))
    install_pages(made)
    return made


@pytest.fixture
def client(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://mill.test")


POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
    "require-trusted-types-for": "'script'",
    "trusted-types": "'none'",
}


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/J20261115_000777/results", "/sign-in", "/whatever/there/is/not"])
async def test_page_url_returns_html_with_strict_security_headers(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-opener-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-cache"
    assert (await client.get(path, headers={"If-None-Match": answer.headers["etag"]})).status_code == 304


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/jobs/x/nothing", "/static/nothing", "/health/x", "/robots.txt"])
async def test_non_page_url_does_not_return_html(client: httpx2.AsyncClient, path: str) -> None:
    answer = await client.get(path)
    assert answer.status_code in (401, 404)
    assert "text/html" not in answer.headers["content-type"]


async def test_page_url_rejects_post(client: httpx2.AsyncClient) -> None:
    assert (await client.post("/jobs")).status_code == 404


@pytest.mark.parametrize("path", ["/", "/jobs", "/jobs/J1/results"])
async def test_page_assets_resolve_below_any_url_prefix(client: httpx2.AsyncClient, path: str) -> None:
    page = (await client.get(path)).text
    parts = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(parts) > 20
    for part in parts:
        assert not part.startswith(("/", "http")), "a proxy may serve the UI below a prefix"
        address = httpx2.URL(f"http://mill.test/prefix{path}").join(part)
        assert (await client.get(address.path.removeprefix("/prefix"))).status_code == 200, part


async def test_page_contains_no_inline_script_or_style(client: httpx2.AsyncClient) -> None:
    page = (await client.get("/jobs")).text
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", page)
    assert all("></script>" in tag for tag in re.findall(r"<script[^>]*>.*?</script>", page, re.DOTALL))


async def test_static_files_are_immutable_and_gzip_compressed(client: httpx2.AsyncClient) -> None:
    version = pages.load_assets().version
    answer = await client.get(f"/static/{version}/core/dom.js")
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "accept-encoding")
    assert answer.text == pages.load_assets().files["core/dom.js"].plain.decode()
    plain = await client.get(f"/static/{version}/core/dom.js", headers={"Accept-Encoding": "identity"})
    assert plain.text == answer.text
    assert "content-encoding" not in plain.headers


@pytest.mark.parametrize(
    "name", ["../app.py", "..%2fapp.py", "core/", "core", "/etc/passwd", "core/none.js", "index.htm"]
)
async def test_static_path_outside_assets_returns_404(client: httpx2.AsyncClient, name: str) -> None:
    assert (await client.get(f"/static/{pages.load_assets().version}/{name}")).status_code == 404
    assert (await client.get("/static/another/core/dom.js")).status_code == 404


def test_static_files_use_no_html_injection_sinks_or_external_urls() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://(?!www\.w3\.org)"
    )
    for name, asset in pages.load_assets().files.items():
        found = forbidden.search(asset.plain.decode())
        assert found is None, f"{name}: {found}"


def test_static_files_have_at_most_420_lines() -> None:
    for name, asset in pages.load_assets().files.items():
        assert asset.plain.count(b"\n") <= 420, name


async def test_page_url_deeper_than_any_screen_returns_404(client: httpx2.AsyncClient) -> None:
    assert (await client.get("/a" * 9)).status_code == 200
    answer = await client.get("/" + "a/" * 20_000)
    assert (answer.status_code, len(answer.content) < 100) == (404, True)
