"""Connections that lead only to addresses that were checked, and that end when nobody wants them any more."""

import contextlib
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from ipaddress import ip_address
from typing import Any

import httpcore2

from tidemill.connectors.remote.limits import GLANCE_S, RemoteLimits, Watch
from tidemill.domain.addresses import IPAddress, literal, refusal
from tidemill.domain.errors import InvalidInput

Resolve = Callable[[str, int], Iterable[str]]
ADDRESSES_TRIED = 8
_END_OF_HEAD = re.compile(rb"\n\r?\n")


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host, by the system's own resolver."""
    return [str(found[4][0]) for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class Wire(httpcore2.NetworkBackend):
    """Resolves, checks and connects in one step: whatever the resolver says later cannot matter."""

    def __init__(self, limits: RemoteLimits, watch: Watch, resolve_: Resolve) -> None:
        self._limits = limits
        self._watch = watch
        self._resolve = resolve_
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "Strand":
        addresses = self._addresses(host, port)
        reason = refusal(host, addresses, port, self._limits.allowed)
        if reason:
            raise InvalidInput(f"{host}: {reason}")
        failure: Exception = httpcore2.ConnectError("it has no address")
        for address in addresses[:ADDRESSES_TRIED]:
            self._watch.check()
            try:
                seconds = self._watch.within(timeout or self._limits.connect_s)
                stream = self._backend.connect_tcp(str(address), port, seconds, local_address, socket_options or ())
                return Strand(stream, self._watch)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    def _addresses(self, host: str, port: int) -> list[IPAddress]:
        known = literal(host)
        if known is not None:
            return [known]
        answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._ask, args=(host, port, answers), daemon=True).start()
        give_up = time.monotonic() + self._limits.connect_s
        while time.monotonic() < give_up:  # the system's resolver knows no deadline and cannot be interrupted
            self._watch.check()
            with contextlib.suppress(queue.Empty):
                return _found(host, answers.get(timeout=GLANCE_S))
        raise httpcore2.ConnectTimeout("its name was not resolved in time")

    def _ask(self, host: str, port: int, answers: "queue.SimpleQueue[list[str] | Exception]") -> None:
        try:
            answers.put(list(self._resolve(host, port)))
        except Exception as error:  # noqa: BLE001  raised where it was asked
            answers.put(error)


def _found(host: str, answer: list[str] | Exception) -> list[IPAddress]:
    if isinstance(answer, list):
        return list(dict.fromkeys(ip_address(text) for text in answer))
    if isinstance(answer, UnicodeError):
        raise InvalidInput(f"{host} is not the name of a host")
    if isinstance(answer, socket.gaierror) and answer.errno != socket.EAI_AGAIN:
        raise InvalidInput(f"{host}: there is no host of that name")
    raise httpcore2.ConnectError("its name could not be resolved") from answer


class Strand(httpcore2.NetworkStream):
    """Reads in short glances, and counts what comes after the head of the answer."""

    def __init__(self, inner: httpcore2.NetworkStream, watch: Watch) -> None:
        self.body = 0
        self._inner = inner
        self._watch = watch
        self._head: bytearray | None = bytearray()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        give_up = time.monotonic() + (timeout or 0)
        while True:
            self._watch.check()
            try:
                data = self._inner.read(max_bytes, self._watch.within(GLANCE_S))
            except httpcore2.ReadTimeout:
                if timeout is not None and time.monotonic() >= give_up:
                    raise
            else:
                self._count(data)
                return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._watch.within(timeout or GLANCE_S))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "Strand":
        seconds = None if timeout is None else self._watch.within(timeout)
        return Strand(self._inner.start_tls(ssl_context, server_hostname, seconds), self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _count(self, data: bytes) -> None:
        """HTTP clients pass over what follows the announced length; here it shows that the length was wrong."""
        if self._head is None:
            self.body += len(data)
            return
        seen = max(0, len(self._head) - 3)
        self._head += data
        while end := _END_OF_HEAD.search(self._head, seen):
            is_interim = self._head[9:10] == b"1"  # HTTP/1.1 1xx
            del self._head[: end.end()]
            seen = 0
            if not is_interim:
                self.body, self._head = len(self._head), None
                return
