"""From a URL to a stored file: whole or not at all."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import httpcore2
import httpx2

from tidemill.connectors.blobs import Blob, Blobs
from tidemill.connectors.remote.answers import PASSING, REDIRECTS, describe, retry_after
from tidemill.connectors.remote.limits import GoingOn, RemoteLimits, Watch
from tidemill.connectors.remote.links import bare, checked, host_of, origin_of, port_of, redirected
from tidemill.connectors.remote.part import About, Part
from tidemill.connectors.remote.portion import Again, Portion, asking
from tidemill.connectors.remote.wire import Resolve, Wire, resolve
from tidemill.domain.errors import InvalidInput, TooLarge, Unreachable

PASSING_TROUBLE = (Again, httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError)
BACKOFF_CAP_S = 10.0
WORDS_MAX = 200


@dataclass(frozen=True, slots=True)
class Fetched:
    """A file of another machine, here."""

    blob: Blob
    url: str  # where it was in the end, without the query
    name: str | None
    content_type: str | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class Glance:
    """The head of an answer, and the beginning of its body."""

    status: int
    headers: httpx2.Headers
    body: bytes


class Remote:
    """Fetches files over HTTP. Blocking: for threads."""

    def __init__(
        self,
        blobs: Blobs,
        limits: RemoteLimits,
        *,
        resolve: Resolve = resolve,
        ssl_context: ssl.SSLContext | None = None,
        authorization: str | None = None,
    ) -> None:
        """``authorization`` goes to the server that is asked, and not to where it redirects."""
        self._authorization = authorization
        self._blobs = blobs
        self._limits = limits
        self._resolve = resolve
        self._given_context = ssl_context

    def download(self, url: str, blob_id: str, *, going_on: GoingOn = lambda: True) -> Fetched:
        """Store the file under this id, going on where an earlier call broke off.

        Raises:
            InvalidInput: It may not be fetched, or the server says that it never can be.
            TooLarge: It is larger than the limit.
            Unreachable: The server does not answer, or not in time. What came of the file is kept.
            Interrupted: ``going_on`` says no. What came of the file is kept.
        """
        watch = Watch(self._limits.total_s, going_on)
        link = checked(url, self._limits.allowed)
        with Part(self._blobs, blob_id) as part:
            try:
                about = self._fill(part, link, watch)
                watch.check()
                blob = part.finish()
            except (InvalidInput, TooLarge) as error:
                part.discard()
                raise type(error)(f"{bare(link)}: {error}") from error
            except OSError:  # of the disk: it is not mended by keeping what fills it
                part.discard()
                raise
            except Unreachable as error:
                raise Unreachable(f"{bare(link)}: {error}") from error
        return Fetched(blob, about.url, about.name, about.content_type, about.etag)

    def glance(self, url: str, *, method: str = "GET", most: int = 0, going_on: GoingOn = lambda: True) -> Glance:
        """The head of what is there, and so many bytes of it: one try.

        Raises:
            InvalidInput: It may not be asked, or its body is longer.
            Unreachable: The server does not answer, or not in time.
        """
        watch = Watch(self._limits.total_s, going_on)
        first = link = checked(url, self._limits.allowed)
        try:
            for _ in range(self._limits.max_redirects + 1):
                with self._answer(link, self._signed([*asking(link).items()], link, first), watch, method) as response:
                    headers = httpx2.Headers(response.headers)
                    if response.status not in REDIRECTS:
                        return Glance(response.status, headers, _beginning(response, most, watch))
                    link = redirected(link, headers.get("location"), self._limits.allowed)
        except PASSING_TROUBLE as error:
            raise Unreachable(f"{bare(first)}: {_words(error)}") from error
        raise InvalidInput(f"{bare(first)}: the server redirects more than {self._limits.max_redirects} times")

    def _signed(self, headers: list[tuple[str, str]], link: httpx2.URL, first: httpx2.URL) -> list[tuple[str, str]]:
        if self._authorization is None or origin_of(link) != origin_of(first):
            return headers
        return [*headers, ("Authorization", self._authorization)]

    def _fill(self, part: Part, link: httpx2.URL, watch: Watch) -> About:
        """Ask until all of it is here.

        Tries that bring something are not counted, nor those that are told to come back: the deadline bounds them.
        """
        tries, most = 0, part.size
        while part.about is None or not part.is_whole:
            watch.check()
            try:
                self._ask(part, link, watch)
            except PASSING_TROUBLE as error:
                if isinstance(error, Again) and error.after is not None:
                    self._come_back(error, error.after, watch)
                    continue
                tries, most = (1, part.size) if part.size > most else (tries + 1, most)
                if tries >= self._limits.tries:
                    raise Unreachable(_words(error)) from error
                watch.rest(min(self._limits.backoff_s * 2 ** (tries - 1), BACKOFF_CAP_S))
        return part.about

    def _ask(self, part: Part, link: httpx2.URL, watch: Watch) -> None:
        """One request, and those that its redirects lead to."""
        first = link
        for _ in range(self._limits.max_redirects + 1):
            portion = Portion(part, link, self._limits.max_bytes)
            with self._answer(link, self._signed(portion.headers, link, first), watch) as response:
                headers = httpx2.Headers(response.headers)
                if response.status in REDIRECTS:
                    link = redirected(link, headers.get("location"), self._limits.allowed)
                    continue
                if response.status in PASSING:
                    raise Again(describe(response.status), retry_after(headers))
                portion.take(response, headers, watch)
                return
        raise InvalidInput(f"the server redirects more than {self._limits.max_redirects} times")

    @contextmanager
    def _answer(
        self, link: httpx2.URL, headers: list[tuple[str, str]], watch: Watch, method: str = "GET"
    ) -> Iterator[httpcore2.Response]:
        target = httpcore2.URL(scheme=link.raw_scheme, host=link.raw_host, port=port_of(link), target=link.raw_path)
        limits, wire = self._limits, Wire(self._limits, watch, self._resolve)
        timeouts = {"connect": limits.connect_s, "read": limits.silence_s, "write": limits.silence_s}
        extensions = {"timeout": timeouts, "sni_hostname": host_of(link).removesuffix(".")}
        context = self._ssl_context if link.scheme == "https" else None
        try:
            with (
                httpcore2.HTTPConnection(target.origin, ssl_context=context, network_backend=wire) as connection,
                connection.stream(method, target, headers=headers, extensions=extensions) as response,
            ):
                yield response
        except httpcore2.ConnectError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise InvalidInput(f"the certificate of {link.host} is not valid: {_words(error)}") from error
            raise

    def _come_back(self, error: Again, after: float, watch: Watch) -> None:
        """When the server says, if that is in time."""
        if not watch.has(after):
            raise Unreachable(f"{error}, and asks to come back only in {after:g} s") from error
        watch.rest(max(after, self._limits.backoff_s))

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        return self._given_context or httpx2.create_ssl_context(trust_env=False)


def _beginning(response: httpcore2.Response, most: int, watch: Watch) -> bytes:
    body = b""
    if most:
        for piece in response.iter_stream():
            watch.check()
            body += piece
            if len(body) > most:
                raise InvalidInput(f"the server answers with more than {most} bytes")
    return body


def _words(error: Exception) -> str:
    """One line, without what only a programmer understands."""
    cause = error.__cause__
    match error, cause:
        case httpcore2.ReadTimeout(), _:
            return "the server fell silent"
        case httpcore2.ConnectTimeout(), _ if not isinstance(cause, TimeoutError):
            return str(error)
        case ((httpcore2.ConnectTimeout() | httpcore2.WriteTimeout()), _):
            return "the server does not answer"
        case _, ssl.SSLCertVerificationError():
            return str(cause.verify_message)
        case _, OSError() if cause.errno is not None and cause.errno > 0 and not isinstance(cause, ssl.SSLError):
            return f"the connection failed: {os.strerror(cause.errno)}"
        case (Again(), _):
            return str(error)
    return f"the connection failed: {' '.join(str(error).split())[:WORDS_MAX]}"
