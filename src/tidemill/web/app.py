"""The page and its files, beside the API: every address that is not the API's is one of the page's."""

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from tidemill.web.assets import Asset, load

NOT_OURS = ("v1", "health", "metrics", "static", "sign-in")  # the first step of an address; /sign-in itself is a screen
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
FOR_EVER = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"
DEEPEST = 8


class Screens(Route):
    """Whatever a browser may be sent to: a deep link is the page, which knows the rest."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD") or not is_screen(scope["path"]):
            return Match.NONE, {}
        return super().matches(scope)


def is_screen(path: str) -> bool:
    first, _, rest = path.removeprefix("/").partition("/")
    if path == "/sign-in":
        return True
    return first not in NOT_OURS and "." not in (rest or first).rpartition("/")[2]


def install(app: FastAPI) -> None:
    """Add the page to a service. Both routes are for anybody: they show nothing but the program itself."""
    load()
    app.router.routes.append(Route("/static/{version}/{name:path}", static, include_in_schema=False))
    app.router.routes.append(Screens("/{path:path}", shell, include_in_schema=False))


async def shell(request: Request) -> Response:
    depth = request.scope["path"].count("/") - 1
    if depth > DEEPEST:  # no screen is there, and the page says at every part of it how deep it is
        return Response("there is no such page", 404, media_type="text/plain")
    page = Asset(load().shell(depth), None, "text/html; charset=utf-8")
    return answer(request.headers, page, ASK_AGAIN)


async def static(request: Request) -> Response:
    """A file of this version: another version's would not fit the others that the browser has."""
    assets = load()
    found = assets.files.get(request.path_params["name"])
    if found is None or request.path_params["version"] != assets.version:
        return Response("there is no such file in this version", 404, media_type="text/plain")
    return answer(request.headers, found, FOR_EVER)


def answer(asked: Headers, asset: Asset, caching: str) -> Response:
    headers = {"content-security-policy": CSP, "cache-control": caching, "etag": asset.etag, "vary": "accept-encoding"}
    known = [tag.strip().removeprefix("W/") for tag in asked.get("if-none-match", "").split(",")]
    if asset.etag in known:
        return Response(None, 304, headers)
    if asset.packed is not None and "gzip" in asked.get("accept-encoding", ""):
        return Response(asset.packed, 200, headers | {"content-encoding": "gzip"}, asset.media_type)
    return Response(asset.plain, 200, headers, asset.media_type)
