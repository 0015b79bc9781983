"""A TLS proxy for FTP. `rclone serve ftp --cert` encrypts only the control connection, not data connections."""

import contextlib
import re
import select
import socket
import ssl
import threading
from pathlib import Path
from typing import Any, Self

_PASSIVE = re.compile(rb"227 .*\((\d+,\d+,\d+,\d+),(\d+),(\d+)\)")
_OWN = {b"AUTH": b"234 go on\r\n", b"PBSZ": b"200 good\r\n", b"PROT": b"200 good\r\n"}


class TlsFront:
    """Forwards the control connection, and opens an encrypted data connection for each passive transfer."""

    def __init__(self, port: int, certificate: Path, key: Path, *, implicit: bool) -> None:
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, key)
        self._behind = port
        self._implicit = implicit

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for thread in self._threads:
            thread.join(5)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _start(self, target: Any, *args: Any) -> None:
        self._threads.append(threading.Thread(target=target, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self._start(self._serve, self._socket.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._behind)) as server,
            self._greeted(client, server.recv(4_096)) as encrypted,
        ):
            self._pass_on(encrypted, server)

    def _pass_on(self, client: ssl.SSLSocket, server: socket.socket) -> None:
        """Forward both directions in one thread, because OpenSSL does not allow concurrent reads and writes."""
        while True:
            ready = [client] if client.pending() else select.select([client, server], [], [])[0]
            for one in ready:
                data = one.recv(4_096)
                if not data:
                    return
                if one is client:
                    self._command(data, client, server)
                else:
                    client.sendall(_PASSIVE.sub(self._passive, data))

    def _greeted(self, client: socket.socket, greeting: bytes) -> ssl.SSLSocket:
        """Send the greeting and return the encrypted connection. Closing it closes the client's socket."""
        if self._implicit:
            encrypted = self._wrapped(client)
            encrypted.sendall(greeting)
            return encrypted
        client.sendall(greeting)
        assert client.recv(4_096).startswith(b"AUTH TLS")
        client.sendall(_OWN[b"AUTH"])
        return self._wrapped(client)

    def _wrapped(self, client: socket.socket) -> ssl.SSLSocket:
        try:
            return self._context.wrap_socket(client, server_side=True)
        except OSError:
            client.close()
            raise

    def _command(self, data: bytes, client: socket.socket, server: socket.socket) -> None:
        """Handle one command. Clients wait for a reply before the next command, so each read is one command."""
        own = _OWN.get(data[:4].upper())
        if own is None:
            server.sendall(data)
        else:
            client.sendall(own)

    def _passive(self, found: re.Match[bytes]) -> bytes:
        listening = socket.create_server(("127.0.0.1", 0))
        self._start(self._transfer, listening, int(found[2]) * 256 + int(found[3]))
        high, low = divmod(listening.getsockname()[1], 256)
        return b"227 Entering Passive Mode (127,0,0,1,%d,%d)" % (high, low)

    def _transfer(self, listening: socket.socket, port: int) -> None:
        with (
            contextlib.suppress(OSError),
            listening,
            socket.create_connection(("127.0.0.1", port)) as source,
            self._wrapped(listening.accept()[0]) as data,
        ):
            while piece := source.recv(65_536):
                data.sendall(piece)
            data.unwrap().close()
