"""A web site on the loopback interface."""

from support.loopback_server import Request, Server
from watches.scenes import Scene


class Web:
    """The files of a server, and the requests that it received."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[bytes, str]] = {}
        self.asked: list[tuple[str, str | None]] = []
        self.secret: str | None = None

    def answer(self, request: Request) -> None:
        path = request.path.partition("?")[0]
        self.asked.append((request.path, request.headers.get("authorization")))
        if self.secret is not None and request.headers.get("authorization") != self.secret:
            request.answer("401 Unauthorized", "Content-Length: 0")
        elif path not in self.files:
            request.answer("404 Not Found", "Content-Length: 0")
        else:
            body, tag = self.files[path]
            request.give(body, f'ETag: "{tag}"')


def allow(scene: Scene, *servers: Server) -> None:
    allowed = [f"127.0.0.1:{server.port}" for server in servers]
    scene.settings = scene.settings.model_copy(update={"remote_allow": allowed})
