"""A client that takes a stream as fast as it comes, and keeps nothing of it."""

import socket
import time

from tidemill.domain.errors import TidemillError

PIECE = 1 << 18
HEAD = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def drain(place: tuple[str, int], path: str, key: str) -> float:
    """The seconds from the request to the end of the body; TidemillError unless it was whole."""
    host, port = place
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    room = memoryview(bytearray(PIECE))
    started = time.monotonic()
    with socket.create_connection(place) as connection:
        connection.sendall(request.encode())
        first = connection.recv(PIECE)
        if not first.startswith(b"HTTP/1.1 200 "):
            raise TidemillError(f"{host}:{port} refused {path}: {first[:1_000].decode(errors='replace')}")
        end = first[-len(LAST_CHUNK) :]
        while size := connection.recv_into(room):
            end = (end + bytes(room[max(0, size - len(LAST_CHUNK)) : size]))[-len(LAST_CHUNK) :]
    if end != LAST_CHUNK:
        raise TidemillError(f"{path} broke off: what was measured is not the work")
    return time.monotonic() - started
