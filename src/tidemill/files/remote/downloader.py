"""Downloads a URL into the blob store, completely or not at all."""

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import httpcore2
import httpx2

from tidemill.core.errors import InvalidInput, RemoteUnreachable, TooLarge
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.files.remote.checked_connection import (
    DownloadLimits,
    HostResolver,
    InterruptibleDeadline,
    ShouldContinue,
    SyncCheckedBackend,
    get_url_host,
    get_url_origin,
    get_url_port,
    parse_allowed_url,
    remove_url_query,
    resolve_host,
    resolve_redirect_url,
)
from tidemill.files.remote.partial_download import (
    REDIRECT_STATUSES,
    TRANSIENT_STATUSES,
    PartialDownload,
    PartRequest,
    ProgressReport,
    RemoteFileInfo,
    RetryableDownloadError,
    describe_http_status,
    make_common_request_headers,
    parse_retry_after,
)

TRANSIENT_DOWNLOAD_ERRORS = (
    RetryableDownloadError,
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
)
DOWNLOAD_BACKOFF_MAX_S = 10.0
TRANSPORT_ERROR_MAX_CHARS = 200


@dataclass(frozen=True, slots=True)
class DownloadedFile:
    """A downloaded file and its metadata."""

    blob: Blob
    url: str  # after redirects, without the query
    name: str | None
    content_type: str | None
    etag: str | None


@dataclass(frozen=True, slots=True)
class ProbeResponse:
    """The status and headers of a response, and the beginning of its body."""

    status: int
    headers: httpx2.Headers
    body: bytes


class Downloader:
    """Downloads files over HTTP. Calls block, so make them in threads."""

    def __init__(
        self,
        blobs: BlobStore,
        limits: DownloadLimits,
        *,
        resolve: HostResolver = resolve_host,
        ssl_context: ssl.SSLContext | None = None,
        authorization: str | None = None,
    ) -> None:
        """``authorization`` is sent to the origin of the URL only, not to other origins after a redirect."""
        self._authorization = authorization
        self._blobs = blobs
        self._limits = limits
        self._resolve = resolve
        self._given_context = ssl_context

    def download(
        self,
        url: str,
        blob_id: str,
        *,
        should_continue: ShouldContinue = lambda: True,
        report_progress: ProgressReport = lambda _size, _total: None,
    ) -> DownloadedFile:
        """Store the file under this id. Resumes an earlier call that did not finish.

        Raises:
            InvalidInput: The URL is not allowed, or the server rejected the request permanently.
            TooLarge: The file is larger than the limit.
            RemoteUnreachable: The server did not respond, or not in time. The downloaded part is kept.
            Interrupted: ``should_continue`` returned False. The downloaded part is kept.
        """
        watch = InterruptibleDeadline(self._limits.total_s, should_continue)
        link = parse_allowed_url(url, self._limits.allowed)
        with PartialDownload(self._blobs, blob_id, report_progress) as part:
            try:
                about = self._request_until_complete(part, link, watch)
                watch.check_time_and_interruption()
                blob = part.finish()
            except (InvalidInput, TooLarge) as error:
                part.discard()
                raise type(error)(f"{remove_url_query(link)}: {error}") from error
            except OSError:  # a disk error: free the space
                part.discard()
                raise
            except RemoteUnreachable as error:
                raise RemoteUnreachable(f"{remove_url_query(link)}: {error}") from error
        return DownloadedFile(blob, about.url, about.name, about.content_type, about.etag)

    def probe(
        self, url: str, *, method: str = "GET", max_body_bytes: int = 0, should_continue: ShouldContinue = lambda: True
    ) -> ProbeResponse:
        """Return the response with at most ``max_body_bytes`` of its body. Does not retry.

        Raises:
            InvalidInput: The URL is not allowed, or the body is longer.
            RemoteUnreachable: The server did not respond, or not in time.
        """
        watch = InterruptibleDeadline(self._limits.total_s, should_continue)
        first = link = parse_allowed_url(url, self._limits.allowed)
        try:
            for _ in range(self._limits.max_redirects + 1):
                with self._open_response(
                    link,
                    self._add_authorization([*make_common_request_headers(link).items()], link, first),
                    watch,
                    method,
                ) as response:
                    headers = httpx2.Headers(response.headers)
                    if response.status not in REDIRECT_STATUSES:
                        return ProbeResponse(
                            response.status, headers, _read_bounded_body(response, max_body_bytes, watch)
                        )
                    link = resolve_redirect_url(link, headers.get("location"), self._limits.allowed)
        except TRANSIENT_DOWNLOAD_ERRORS as error:
            raise RemoteUnreachable(f"{remove_url_query(first)}: {_describe_transport_error(error)}") from error
        raise InvalidInput(
            f"{remove_url_query(first)}: the server redirected more than {self._limits.max_redirects} times"
        )

    def _add_authorization(
        self, headers: list[tuple[str, str]], link: httpx2.URL, first: httpx2.URL
    ) -> list[tuple[str, str]]:
        if self._authorization is None or get_url_origin(link) != get_url_origin(first):
            return headers
        return [*headers, ("Authorization", self._authorization)]

    def _request_until_complete(
        self, part: PartialDownload, link: httpx2.URL, deadline: InterruptibleDeadline
    ) -> RemoteFileInfo:
        """Send requests until the file is complete.

        Attempts that bring data do not count, and neither do responses with Retry-After. The deadline limits them.
        """
        tries, most = 0, part.size
        while part.about is None or not part.is_complete:
            deadline.check_time_and_interruption()
            try:
                self._request_missing_part_once(part, link, deadline)
            except TRANSIENT_DOWNLOAD_ERRORS as error:
                if isinstance(error, RetryableDownloadError) and error.after is not None:
                    self._wait_for_retry_after(error, error.after, deadline)
                    continue
                tries, most = (1, part.size) if part.size > most else (tries + 1, most)
                if tries >= self._limits.tries:
                    raise RemoteUnreachable(_describe_transport_error(error)) from error
                deadline.sleep(min(self._limits.backoff_s * 2 ** (tries - 1), DOWNLOAD_BACKOFF_MAX_S))
        return part.about

    def _request_missing_part_once(
        self, part: PartialDownload, link: httpx2.URL, deadline: InterruptibleDeadline
    ) -> None:
        """Send one request and follow its redirects."""
        first = link
        for _ in range(self._limits.max_redirects + 1):
            portion = PartRequest(part, link, self._limits.max_bytes)
            with self._open_response(link, self._add_authorization(portion.headers, link, first), deadline) as response:
                headers = httpx2.Headers(response.headers)
                if response.status in REDIRECT_STATUSES:
                    link = resolve_redirect_url(link, headers.get("location"), self._limits.allowed)
                    continue
                if response.status in TRANSIENT_STATUSES:
                    raise RetryableDownloadError(describe_http_status(response.status), parse_retry_after(headers))
                portion.receive_response(response, headers, deadline)
                return
        raise InvalidInput(f"the server redirected more than {self._limits.max_redirects} times")

    @contextmanager
    def _open_response(
        self, link: httpx2.URL, headers: list[tuple[str, str]], deadline: InterruptibleDeadline, method: str = "GET"
    ) -> Iterator[httpcore2.Response]:
        target = httpcore2.URL(
            scheme=link.raw_scheme, host=link.raw_host, port=get_url_port(link), target=link.raw_path
        )
        limits, wire = self._limits, SyncCheckedBackend(self._limits, deadline, self._resolve)
        timeouts = {"connect": limits.connect_s, "read": limits.silence_s, "write": limits.silence_s}
        extensions = {"timeout": timeouts, "sni_hostname": get_url_host(link).removesuffix(".")}
        context = self._ssl_context if link.scheme == "https" else None
        try:
            with (
                httpcore2.HTTPConnection(target.origin, ssl_context=context, network_backend=wire) as connection,
                connection.stream(method, target, headers=headers, extensions=extensions) as response,
            ):
                yield response
        except httpcore2.ConnectError as error:
            if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise InvalidInput(
                    f"the certificate of {link.host} is not valid: {_describe_transport_error(error)}"
                ) from error
            raise

    def _wait_for_retry_after(
        self, error: RetryableDownloadError, after: float, deadline: InterruptibleDeadline
    ) -> None:
        """Wait as long as Retry-After says; RemoteUnreachable if the deadline is earlier."""
        if not deadline.has_time_for(after):
            raise RemoteUnreachable(f"{error}; Retry-After is {after:g} s, which exceeds the time limit") from error
        deadline.sleep(max(after, self._limits.backoff_s))

    @cached_property
    def _ssl_context(self) -> ssl.SSLContext:
        return self._given_context or httpx2.create_ssl_context(trust_env=False)


def _read_bounded_body(response: httpcore2.Response, max_body_bytes: int, deadline: InterruptibleDeadline) -> bytes:
    body = b""
    if max_body_bytes:
        for piece in response.iter_stream():
            deadline.check_time_and_interruption()
            body += piece
            if len(body) > max_body_bytes:
                raise InvalidInput(f"the response is longer than {max_body_bytes} bytes")
    return body


def _describe_transport_error(error: Exception) -> str:
    """Return the error as one line without implementation details."""
    cause = error.__cause__
    match error, cause:
        case httpcore2.ReadTimeout(), _:
            return "the server stopped sending data"
        case httpcore2.ConnectTimeout(), _ if not isinstance(cause, TimeoutError):
            return str(error)
        case ((httpcore2.ConnectTimeout() | httpcore2.WriteTimeout()), _):
            return "the server did not respond"
        case _, ssl.SSLCertVerificationError():
            return str(cause.verify_message)
        case _, OSError() if cause.errno is not None and cause.errno > 0 and not isinstance(cause, ssl.SSLError):
            return f"the connection failed: {os.strerror(cause.errno)}"
        case (RetryableDownloadError(), _):
            return str(error)
    return f"the connection failed: {' '.join(str(error).split())[:TRANSPORT_ERROR_MAX_CHARS]}"
