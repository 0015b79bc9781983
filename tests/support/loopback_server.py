"""HTTP servers on the loopback interface that send exactly the bytes that a test specifies, valid or not."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from tidemill.core.allowed_hosts import AllowedHost


@dataclass
class Request:
    """A request, with methods that respond to it."""

    path: str
    headers: dict[str, str]
    send: Callable[[bytes], None]
    gone: threading.Event  # set when the server closes, so that stalled responses end

    @property
    def first(self) -> int:
        """The first byte of the requested range; 0 without a range."""
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(found[1]) if found else 0

    def answer(self, status: str, *headers: str, body: bytes = b"") -> None:
        self.send("\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body)

    def give(self, body: bytes, *headers: str) -> None:
        self.answer("200 OK", f"Content-Length: {len(body)}", *headers, body=body)

    def redirect(self, location: str) -> None:
        self.answer("302 Found", f"Location: {location}", "Content-Length: 0")

    def stall(self) -> None:
        self.gone.wait(60)


Answer = Callable[[Request], None]
CONNECTION_TIMEOUT_S = 60.0
THREAD_TIMEOUT_S = 90.0


@dataclass
class Server:
    """A server that handles one request per connection, each in its own thread."""

    answer: Answer
    context: ssl.SSLContext | None = None
    requests: list[Request] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._gone = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._gone.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for thread in self._threads:
            thread.join(THREAD_TIMEOUT_S)
            assert not thread.is_alive(), "a connection of the server is still open: the client has not closed it"

    @property
    def allowed(self) -> AllowedHost:
        return AllowedHost.parse(f"127.0.0.1:{self.port}")

    def url(self, path: str = "/data.csv", host: str = "127.0.0.1") -> str:
        return f"{'https' if self.context else 'http'}://{host}:{self.port}{path}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connection,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(CONNECTION_TIMEOUT_S)
        with contextlib.suppress(OSError), connection:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            with connection:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    received = connection.recv(65_536)
                    if not received:  # the client closed the connection before its request was complete
                        return
                    head += received
                first, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
                self.requests.append(Request(first.split(" ")[1], headers, connection.sendall, self._gone))
                self.answer(self.requests[-1])


def ranged(body: bytes, *headers: str, breaks_at: Callable[[int], int | None] = lambda _: None) -> Answer:
    """Serve ``body`` with support for ranges. ``breaks_at(n)`` is the length after which response n breaks off."""
    count = 0

    def answer(request: Request) -> None:
        nonlocal count
        count += 1
        first = request.first
        said = [*headers, f"Content-Length: {len(body) - first}"]
        if first:
            request.answer("206 Partial Content", f"Content-Range: bytes {first}-{len(body) - 1}/{len(body)}", *said)
        else:
            request.answer("200 OK", *said)
        request.send(body[first:][: breaks_at(count)])

    return answer
