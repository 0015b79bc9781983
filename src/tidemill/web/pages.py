"""Serve the web UI beside the API: every path that does not belong to the API is a page."""

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from tidemill.web.assets import Asset, load_assets

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
