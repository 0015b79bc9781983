"""The watch source for files on web servers, from a list of URLs or an index. The files cannot be moved."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from http import HTTPStatus
from urllib.parse import urljoin

import httpx2

from tidemill.core.errors import InvalidInput, RemoteUnreachable, StorageAccessDenied, TooLarge, UnknownFile
from tidemill.files.blobs.blob_store import Blob, BlobStore
from tidemill.files.remote.checked_connection import DownloadLimits, get_url_origin
from tidemill.files.remote.downloader import Downloader, ProbeResponse
from tidemill.files.remote.partial_download import TRANSIENT_STATUSES, describe_http_status
from tidemill.watches.file_state import ListedFile
from tidemill.watches.sources.watch_source import ByteChunks, FetchLimits, WatchSource, parse_reported_file_size
from tidemill.watches.watch import WebAddress, strip_query_and_fragment

INDEX_MAX_BYTES = 4 << 20
INDEX_FILES_MAX = 10_000
PROBE_TIMEOUT_S = 15.0
INDEX_NAME_MAX_CHARS = 100
UNREACHABLE_IN_A_ROW_MAX = 5  # then the listing stops, because the remaining files would time out too
_HEAD_UNSUPPORTED_STATUSES = (400, 403, 405, 501)  # also from stores whose links are signed for GET only
_MISSING_STATUSES = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HttpWatchSource(WatchSource):
    """Files on web servers. Connects only to addresses that downloads may connect to."""

    def __init__(
        self, address: WebAddress, blobs: BlobStore, limits: DownloadLimits, authorization: str | None
    ) -> None:
        self._address = address
        self._limits = limits
        self._authorization = authorization
        self._origins = {_parse_origin(url) for url in address.urls}
        probe_limits = replace(limits, total_s=PROBE_TIMEOUT_S)
        self._probers = {
            is_own: self._make_downloader(blobs, probe_limits, is_own_server=is_own) for is_own in (True, False)
        }
        self.listing_errors: list[str] = []
        self._urls: dict[str, str] = {}  # display URL -> complete URL

    def list_files(
        self,
        *,
        recursive: bool,  # noqa: ARG002  HTTP sources have no folders
        skip_folders: frozenset[str],  # noqa: ARG002
    ) -> Iterator[ListedFile]:
        self.listing_errors = []
        in_a_row = 0
        for path in self._refresh_url_names():
            self.raise_if_interrupted()
            try:
                entry = self.find_file(path)
            except (StorageAccessDenied, RemoteUnreachable, InvalidInput) as error:
                self.listing_errors.append(str(error))
                # A server that denies access to one file is reachable, so the next files may be available.
                in_a_row = in_a_row + 1 if isinstance(error, RemoteUnreachable) else 0
                if in_a_row >= UNREACHABLE_IN_A_ROW_MAX:
                    return
                continue
            in_a_row = 0
            if entry is None:
                self.listing_errors.append(f"{path}: file not found")
            else:
                yield entry

    def find_file(self, path: str) -> ListedFile | None:
        response = self._probe(self._find_url(path), "HEAD")
        if response.status in _HEAD_UNSUPPORTED_STATUSES:
            response = self._probe(self._find_url(path), "GET")
        if response.status in _MISSING_STATUSES:
            return None
        _check_status(path, response.status)
        version = response.headers.get("etag") or response.headers.get("last-modified") or ""
        return ListedFile(path, parse_reported_file_size(response.headers.get("content-length")), version)

    def read(self, path: str) -> ByteChunks:  # pragma: no cover  fetch_to_blob_store downloads files instead
        raise NotImplementedError(path)

    def move(self, entry: ListedFile, to: str) -> bool:
        raise InvalidInput(f'Cannot move "{entry.path}" to "{to}": files of HTTP sources cannot be moved')

    def fetch_to_blob_store(self, entry: ListedFile, blobs: BlobStore, name: str, limits: FetchLimits) -> Blob:
        if entry.size is not None and entry.size > limits.max_bytes:
            raise TooLarge(f"The file is larger than {limits.max_bytes >> 20} MB")
        url = self._find_url(entry.path)
        remote = self._make_downloader(blobs, self._limits, is_own_server=self._is_own_server(url))
        try:
            return remote.download(url, name, should_continue=limits.should_continue).blob
        except InvalidInput as error:
            if self.find_file(entry.path) is None:
                raise UnknownFile(str(error)) from None
            raise

    def _refresh_url_names(self) -> Sequence[str]:
        urls = self._address.urls
        if self._address.is_index:
            urls = tuple(self._read_index_urls(urls[0]))
        if len(urls) > INDEX_FILES_MAX:
            raise InvalidInput(f"The index contains more than {INDEX_FILES_MAX} files")
        self._urls = {make_display_url(url): url for url in urls}
        return list(self._urls)

    def _find_url(self, path: str) -> str:
        if path not in self._urls:
            self._refresh_url_names()
        if path not in self._urls:
            raise UnknownFile(f'"{path}" is not in the source any more')
        return self._urls[path]

    def _read_index_urls(self, url: str) -> Iterator[str]:
        response = self._probe(url, "GET", max_body_bytes=INDEX_MAX_BYTES)
        _check_status(strip_query_and_fragment(url), response.status)
        if response.status in _MISSING_STATUSES:
            raise UnknownFile(f"{strip_query_and_fragment(url)}: index not found ({response.status})")
        for name in parse_index(response.body):
            try:
                yield urljoin(url, name).partition("#")[0]
            except ValueError:
                self.listing_errors.append(f'The index contains an invalid URL: "{name[:INDEX_NAME_MAX_CHARS]}"')

    def _probe(self, url: str, method: str, *, max_body_bytes: int = 0) -> ProbeResponse:
        return self._probers[self._is_own_server(url)].probe(
            url, method=method, max_body_bytes=max_body_bytes, should_continue=self.should_continue
        )

    def _is_own_server(self, url: str) -> bool:
        """Return whether the watch itself names the server of the URL. An index may contain any server."""
        return _parse_origin(url) in self._origins

    def _make_downloader(self, blobs: BlobStore, limits: DownloadLimits, *, is_own_server: bool) -> Downloader:
        return Downloader(blobs, limits, authorization=self._authorization if is_own_server else None)


def _check_status(path: str, status: int) -> None:
    if status in _DENIED_STATUSES:
        raise StorageAccessDenied(f"{path}: {describe_http_status(status)}")
    if status in TRANSIENT_STATUSES:
        raise RemoteUnreachable(f"{path}: {describe_http_status(status)}")
    if status not in (HTTPStatus.OK, *_MISSING_STATUSES):
        raise InvalidInput(f"{path}: {describe_http_status(status)}")


def _parse_origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port of a URL, or None if it is invalid."""
    try:
        return get_url_origin(httpx2.URL(url))
    except (httpx2.InvalidURL, ValueError, KeyError):
        return None


def make_display_url(url: str) -> str:
    """Return the URL as it is shown and stored. A hash replaces the query and fragment, which may contain a secret."""
    shown = strip_query_and_fragment(url)
    return shown if shown == url else f"{shown}#{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def parse_index(index: bytes) -> list[str]:
    """Return the unique names or URLs in an index: one per line, a JSON list, or the links of an HTML page."""
    try:
        text = index.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The index is not UTF-8 text") from None
    start = text.lstrip()[:1]
    if start == "[":
        names = _parse_json_index(text)
    elif start == "<":
        names = _parse_html_links(text)
    else:
        lines = (line.strip() for line in text.splitlines())
        names = [line for line in lines if line and not line.startswith("#")]
    if any(not name.isprintable() for name in names):
        raise InvalidInput("The index contains a name with unprintable characters")
    return list(dict.fromkeys(names))


def _parse_json_index(text: str) -> list[str]:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput('The index starts with "[" but is not valid JSON') from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidInput("The JSON index is not a list of strings")
    return names


class _LinkCollector(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href") if tag == "a" else None
        if link and not link.startswith(("#", "?")) and not strip_query_and_fragment(link).endswith("/"):
            self.links.append(link)


def _parse_html_links(text: str) -> list[str]:
    page = _LinkCollector()
    try:
        page.feed(text)
    except (AssertionError, ValueError):  # HTMLParser raises these for malformed documents
        raise InvalidInput('The index starts with "<" but is not valid HTML') from None
    return page.links
