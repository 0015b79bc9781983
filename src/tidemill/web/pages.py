"""Serve the web UI beside the API: every path that does not belong to the API is a page."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

MEDIA_TYPE_BY_EXTENSION = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
GZIP_MIN_BYTES = 400  # smaller files are not compressed
PRELOADED_FOLDERS = ("core/", "ui/")  # needed by every screen; preloading avoids one request after the other
BASE_STYLESHEETS = ("css/tokens.css", "css/base.css", "css/components.css")
PAGE_TEMPLATE = "index.html"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, uncompressed and compressed."""

    plain: bytes
    gzipped: bytes | None
    media_type: str

    @property
    def etag(self) -> str:
        return f'"{hashlib.sha256(self.plain).hexdigest()[:20]}"'


@dataclass(frozen=True, slots=True)
class Assets:
    """All files. ``version`` changes when any file changes, and is part of every URL."""

    version: str
    files: dict[str, Asset]

    def render_page(self, depth: int) -> bytes:
        """Return the page for a URL ``depth`` levels below the root. Links are relative: a proxy may add a prefix."""
        up = "../" * depth or "./"
        root = f"{up}static/{self.version}/"
        css = [f'<link rel="stylesheet" href="{root}{name}">' for name in self._list_stylesheets()]
        modules = [
            f'<link rel="modulepreload" href="{root}{name}">' for name in sorted(self.files) if _is_preloaded(name)
        ]
        page = self.files[PAGE_TEMPLATE].plain.decode()
        return page.replace("{root}", root).replace("{styles}", "\n".join(css + modules)).encode()

    def _list_stylesheets(self) -> list[str]:
        """Return the base stylesheets in order, then the stylesheets of single screens."""
        return [
            *BASE_STYLESHEETS,
            *sorted(name for name in self.files if name.endswith(".css") and name not in BASE_STYLESHEETS),
        ]


def _is_preloaded(name: str) -> bool:
    return name.startswith(PRELOADED_FOLDERS) and name.endswith(".js")


@cache
def load_assets() -> Assets:
    contents = {name: part.read_bytes() for name, part in _list_files(resources.files("tidemill.web") / "static")}
    digest = hashlib.sha256()
    for name, content in sorted(contents.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return Assets(digest.hexdigest()[:12], {name: _build_asset(name, content) for name, content in contents.items()})


def _build_asset(name: str, content: bytes) -> Asset:
    compressed = gzip.compress(content, 6, mtime=0) if len(content) > GZIP_MIN_BYTES else None
    return Asset(content, compressed, MEDIA_TYPE_BY_EXTENSION[name.rpartition(".")[2]])


def _list_files(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    files: list[tuple[str, Traversable]] = []
    for part in folder.iterdir():
        name = prefix + part.name
        if part.is_dir():
            files += _list_files(part, f"{name}/")
        elif name.rpartition(".")[2] in MEDIA_TYPE_BY_EXTENSION:
            files.append((name, part))
    return files


NON_PAGE_PREFIXES = (
    "v1",
    "health",
    "metrics",
    "static",
    "sign-in",
)  # the first part of a path; /sign-in itself is a screen
PAGE_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
CACHE_FOREVER = "public, max-age=31536000, immutable"
CACHE_REVALIDATE = "no-cache"
PAGE_PATH_MAX_DEPTH = 8


class PageRoute(Route):
    """Match every path of the UI. All deep links get the same page, which renders the screen."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not is_page_path(scope["path"]):
            return Match.NONE, {}
        return super().matches(scope)


def is_page_path(path: str) -> bool:
    first, _, rest = path.removeprefix("/").partition("/")
    if path == "/sign-in":
        return True
    return first not in NON_PAGE_PREFIXES and "." not in (rest or first).rpartition("/")[2]


def install_pages(app: FastAPI) -> None:
    """Add the web UI to a service. Its routes are public: they serve the application and no data."""
    load_assets()
    app.router.routes.append(Route("/static/{version}/{name:path}", serve_static_file, include_in_schema=False))
    app.router.routes.append(PageRoute("/{path:path}", serve_page, include_in_schema=False))


async def serve_page(request: Request) -> Response:
    depth = request.scope["path"].count("/") - 1
    if depth > PAGE_PATH_MAX_DEPTH:  # no screen is that deep, and the page repeats its depth in every link
        return Response("Page not found", 404, media_type="text/plain")
    page = Asset(load_assets().render_page(depth), None, "text/html; charset=utf-8")
    return build_asset_response(request.headers, page, CACHE_REVALIDATE)


async def serve_static_file(request: Request) -> Response:
    """Return a file of the current version. Other versions get 404, because the files of two versions do not fit."""
    assets = load_assets()
    asset = assets.files.get(request.path_params["name"])
    if asset is None or request.path_params["version"] != assets.version:
        return Response("File not found in this version", 404, media_type="text/plain")
    return build_asset_response(request.headers, asset, CACHE_FOREVER)


def build_asset_response(request_headers: Headers, asset: Asset, cache_control: str) -> Response:
    headers = {
        "content-security-policy": PAGE_CSP,
        "cache-control": cache_control,
        "etag": asset.etag,
        "vary": "accept-encoding",
    }
    known = [tag.strip().removeprefix("W/") for tag in request_headers.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(None, 304, headers)
    if asset.gzipped is not None and "gzip" in request_headers.get("accept-encoding", ""):
        return Response(asset.gzipped, 200, headers | {"content-encoding": "gzip"}, asset.media_type)
    return Response(asset.plain, 200, headers, asset.media_type)
