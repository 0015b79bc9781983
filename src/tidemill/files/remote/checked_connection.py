"""HTTP connections to allowed addresses only, with limits on size and time."""

import contextlib
import queue
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.message import Message
from ipaddress import ip_address
from typing import Any, Self

import httpcore2
import httpx2

from tidemill.config import Settings
from tidemill.core.allowed_hosts import (
    AllowedHost,
    IPAddress,
    explain_refused_host,
    explain_refused_port,
    parse_ip_literal,
)
from tidemill.core.errors import Interrupted, InvalidInput, RemoteUnreachable

URL_MAX_CHARS = 8_192
URL_FILE_NAME_MAX_CHARS = 200
DEFAULT_HTTP_PORTS = {"http": 80, "https": 443}
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")


def parse_allowed_url(url: str | httpx2.URL, allowed: Iterable[AllowedHost] = ()) -> httpx2.URL:
    """Return the parsed URL if its scheme, host and port are allowed. Does not resolve host names.

    Raises:
        InvalidInput: The URL is not allowed.
    """
    if len(str(url)) > URL_MAX_CHARS:
        raise InvalidInput(f"The URL is longer than {URL_MAX_CHARS} characters")
    try:
        link = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise InvalidInput(f"Invalid URL: {error}") from None
    except ValueError:
        raise InvalidInput("Invalid URL") from None
    if link.scheme not in DEFAULT_HTTP_PORTS:
        raise InvalidInput("Invalid URL scheme. Use an http or https URL.")
    if not link.host:
        raise InvalidInput("The URL has no host")
    if link.userinfo:
        raise InvalidInput("The URL contains a user name or password, which would be stored. Remove it.")
    reason = _find_refusal_reason(link, tuple(allowed))
    if reason:
        raise InvalidInput(f"{link.host}: {reason}")
    return link.copy_with(fragment=None)


def _find_refusal_reason(link: httpx2.URL, allowed: tuple[AllowedHost, ...]) -> str | None:
    host, port = get_url_host(link), get_url_port(link)
    address = parse_ip_literal(host)
    return (
        explain_refused_port(port, allowed) if address is None else explain_refused_host(host, [address], port, allowed)
    )


def get_url_host(link: httpx2.URL) -> str:
    return link.raw_host.decode("ascii")


def get_url_port(link: httpx2.URL) -> int:
    return DEFAULT_HTTP_PORTS[link.scheme] if link.port is None else link.port


def get_url_origin(link: httpx2.URL) -> tuple[str, str, int]:
    """Return the scheme, host and port. Secrets are sent to the same origin only."""
    return link.scheme, get_url_host(link).lower(), get_url_port(link)


def remove_url_query(link: httpx2.URL) -> str:
    """Return the URL without its query, which may contain secrets."""
    return f"{link.scheme}://{link.netloc.decode('ascii')}{link.raw_path.partition(b'?')[0].decode('ascii')}"


def resolve_redirect_url(link: httpx2.URL, location: str | None, allowed: Iterable[AllowedHost]) -> httpx2.URL:
    """Return the target of a redirect; InvalidInput if it is not allowed."""
    if not location:
        raise InvalidInput("the server sent a redirect without a Location header")
    try:
        target = link.join(location)
    except (httpx2.InvalidURL, ValueError):
        raise InvalidInput("the server redirected to an invalid URL") from None
    if link.scheme == "https" and target.scheme == "http":
        raise InvalidInput("the server redirected from https to http")
    try:
        return parse_allowed_url(target, allowed)
    except InvalidInput as error:
        raise InvalidInput(f"the server redirected to a URL that is not allowed: {error}") from None


def derive_file_name(link: httpx2.URL, disposition: str | None = None) -> str | None:
    """Return the file name from Content-Disposition or the path of the URL, without folders; None if both are empty."""
    for text in (_parse_disposition_name(disposition or "attachment"), link.path):
        name = _CONTROL_CHARACTERS.sub("", (text or "").replace("\\", "/").rpartition("/")[2]).strip()
        if name.strip("."):
            return name[-URL_FILE_NAME_MAX_CHARS:]  # keep the end, which has the extension
    return None


def get_url_file_name(url: str) -> str:
    """Return the last segment of a URL's path, which can be empty."""
    return derive_file_name(httpx2.URL(url)) or ""


def _parse_disposition_name(disposition: str) -> str | None:
    message = Message()
    try:
        message["Content-Disposition"] = _CONTROL_CHARACTERS.sub("", disposition)
        return message.get_filename()
    except ValueError:  # malformed header
        return None


ShouldContinue = Callable[[], bool]
DEADLINE_POLL_S = 0.1  # how often a wait checks the deadline


@dataclass(frozen=True, slots=True)
class DownloadLimits:
    """Limits of a download."""

    max_bytes: int
    total_s: float = 300.0
    connect_s: float = 10.0
    silence_s: float = 30.0  # maximum time between two chunks
    tries: int = 4  # consecutive attempts without new data
    backoff_s: float = 0.5
    max_redirects: int = 3
    allowed: Sequence[AllowedHost] = ()

    @classmethod
    def from_settings(cls, settings: Settings, *, seconds: float | None = None) -> Self:
        """Return the limits in the settings, with a total time of at most ``seconds``."""
        allowed = tuple(AllowedHost.parse(entry) for entry in settings.remote_allow)
        total_s = settings.remote_url_timeout if seconds is None else min(seconds, settings.remote_url_timeout)
        return cls(settings.max_file_size_mb << 20, total_s=total_s, allowed=allowed)


class InterruptibleDeadline:
    """Stops a download at its deadline, or when ``should_continue`` returns False."""

    def __init__(self, seconds: float, should_continue: ShouldContinue) -> None:
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._going_on = should_continue

    def check_time_and_interruption(self) -> None:
        if not self._going_on():
            raise Interrupted("The download was stopped")
        if time.monotonic() >= self._ends_at:
            raise RemoteUnreachable(f"the download did not finish within {self._seconds:g} s")

    def cap_timeout(self, seconds: float) -> float:
        """Return ``seconds``, or the remaining time if that is less; never 0, which would mean no wait."""
        return max(0.001, min(seconds, self._ends_at - time.monotonic()))

    def has_time_for(self, seconds: float) -> bool:
        return time.monotonic() + seconds < self._ends_at

    def sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self.check_time_and_interruption()
            time.sleep(self.cap_timeout(min(left, DEADLINE_POLL_S)))
        self.check_time_and_interruption()


HostResolver = Callable[[str, int], Iterable[str]]
DOWNLOAD_ADDRESSES_TRIED_MAX = 8
_HTTP_HEAD_END = re.compile(rb"\n\r?\n")


def resolve_host(host: str, port: int) -> list[str]:
    """Return the addresses of a host from the system resolver."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


class SyncCheckedBackend(httpcore2.NetworkBackend):
    """Resolves a host, checks its addresses and connects to one of them, which prevents DNS rebinding."""

    def __init__(self, limits: DownloadLimits, deadline: InterruptibleDeadline, resolver: HostResolver) -> None:
        self._limits = limits
        self._watch = deadline
        self._resolve = resolver
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> "BodyCountingStream":
        addresses = self._resolve_addresses(host, port)
        reason = explain_refused_host(host, addresses, port, self._limits.allowed)
        if reason:
            raise InvalidInput(f"{host}: {reason}")
        failure: Exception = httpcore2.ConnectError("the host name has no address")
        for address in addresses[:DOWNLOAD_ADDRESSES_TRIED_MAX]:
            self._watch.check_time_and_interruption()
            try:
                seconds = self._watch.cap_timeout(timeout or self._limits.connect_s)
                stream = self._backend.connect_tcp(str(address), port, seconds, local_address, socket_options or ())
                return BodyCountingStream(stream, self._watch)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    def _resolve_addresses(self, host: str, port: int) -> list[IPAddress]:
        known = parse_ip_literal(host)
        if known is not None:
            return [known]
        answers: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()
        threading.Thread(target=self._resolve_into_queue, args=(host, port, answers), daemon=True).start()
        give_up = time.monotonic() + self._limits.connect_s
        while time.monotonic() < give_up:  # the system resolver has no timeout and cannot be interrupted
            self._watch.check_time_and_interruption()
            with contextlib.suppress(queue.Empty):
                return _parse_resolver_answer(host, answers.get(timeout=DEADLINE_POLL_S))
        raise httpcore2.ConnectTimeout("the host name was not resolved in time")

    def _resolve_into_queue(self, host: str, port: int, answers: "queue.SimpleQueue[list[str] | Exception]") -> None:
        try:
            answers.put(list(self._resolve(host, port)))
        except Exception as error:  # noqa: BLE001  the caller raises it
            answers.put(error)


def _parse_resolver_answer(host: str, answer: list[str] | Exception) -> list[IPAddress]:
    if isinstance(answer, list):
        return list(dict.fromkeys(ip_address(text) for text in answer))
    if isinstance(answer, UnicodeError):
        raise InvalidInput(f"{host}: invalid host name")
    if isinstance(answer, socket.gaierror) and answer.errno != socket.EAI_AGAIN:
        raise InvalidInput(f"{host}: unknown host")
    raise httpcore2.ConnectError("the host name could not be resolved") from answer


class BodyCountingStream(httpcore2.NetworkStream):
    """Checks the deadline while it reads, and counts the bytes of the response body."""

    def __init__(self, inner: httpcore2.NetworkStream, deadline: InterruptibleDeadline) -> None:
        self.body = 0
        self._inner = inner
        self._watch = deadline
        self._head: bytearray | None = bytearray()

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        give_up = time.monotonic() + (timeout or 0)
        while True:
            self._watch.check_time_and_interruption()
            try:
                data = self._inner.read(max_bytes, self._watch.cap_timeout(DEADLINE_POLL_S))
            except httpcore2.ReadTimeout:
                if timeout is not None and time.monotonic() >= give_up:
                    raise
            else:
                self._count_body_bytes(data)
                return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._watch.cap_timeout(timeout or DEADLINE_POLL_S))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> "BodyCountingStream":
        seconds = None if timeout is None else self._watch.cap_timeout(timeout)
        return BodyCountingStream(self._inner.start_tls(ssl_context, server_hostname, seconds), self._watch)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)

    def _count_body_bytes(self, data: bytes) -> None:
        """Count the body. HTTP clients ignore data beyond Content-Length; the count shows that the length was wrong."""
        if self._head is None:
            self.body += len(data)
            return
        seen = max(0, len(self._head) - 3)
        self._head += data
        while end := _HTTP_HEAD_END.search(self._head, seen):
            is_interim = self._head[9:10] == b"1"  # HTTP/1.1 1xx
            del self._head[: end.end()]
            seen = 0
            if not is_interim:
                self.body, self._head = len(self._head), None
                return
