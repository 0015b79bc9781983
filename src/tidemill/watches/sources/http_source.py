"""Files of the web: those of a list, or those that an index names. They cannot be moved."""

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
from tidemill.files.remote.checked_connection import DownloadLimits
from tidemill.files.remote.downloader import Downloader, ProbeResponse
from tidemill.files.remote.remote_urls import get_url_origin
from tidemill.files.remote.response_headers import TRANSIENT_STATUSES, describe_status
from tidemill.watches.file_state import ListedFile
from tidemill.watches.source_address import WebAddress, strip_query_and_fragment
from tidemill.watches.sources.watch_source import ByteChunks, FetchLimits, WatchSource, parse_size

INDEX_MAX_BYTES = 4 << 20
INDEX_FILES_MAX = 10_000
PROBE_TIMEOUT_S = 15.0
INDEX_NAME_MAX_CHARS = 100
UNREACHABLE_IN_A_ROW_MAX = 5  # files of which nobody answers, one after the other: the others would take as long
_HEAD_UNSUPPORTED_STATUSES = (400, 403, 405, 501)  # also from stores whose links are signed for GET alone
_MISSING_STATUSES = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class HttpWatchSource(WatchSource):
    """Speaks only to machines that downloads may speak to."""

    def __init__(
        self, address: WebAddress, blobs: BlobStore, limits: DownloadLimits, authorization: str | None
    ) -> None:
        self._address = address
        self._limits = limits
        self._authorization = authorization
        self._origins = {_parse_origin(url) for url in address.urls}
        looking = replace(limits, total_s=PROBE_TIMEOUT_S)
        self._looking = {
            is_ours: self._make_downloader(blobs, looking, is_own_server=is_ours) for is_ours in (True, False)
        }
        self.listing_errors: list[str] = []
        self._urls: dict[str, str] = {}  # whole, by what they are called here

    def list_files(self, *, recursive: bool, skip_folders: frozenset[str]) -> Iterator[ListedFile]:  # noqa: ARG002  there are no folders
        self.listing_errors = []
        in_a_row = 0
        for path in self._refresh_url_names():
            self.check_interrupted()
            try:
                entry = self.find_entry(path)
            except (StorageAccessDenied, RemoteUnreachable, InvalidInput) as error:
                self.listing_errors.append(str(error))
                in_a_row = (
                    in_a_row + 1 if isinstance(error, RemoteUnreachable) else 0
                )  # a refusal says nothing of others
                if in_a_row >= UNREACHABLE_IN_A_ROW_MAX:
                    return
                continue
            in_a_row = 0
            if entry is None:
                self.listing_errors.append(f"{path}: there is no such file")
            else:
                yield entry

    def find_entry(self, path: str) -> ListedFile | None:
        found = self._probe(self._find_url(path), "HEAD")
        if found.status in _HEAD_UNSUPPORTED_STATUSES:
            found = self._probe(self._find_url(path), "GET")
        if found.status in _MISSING_STATUSES:
            return None
        _check_status(path, found.status)
        version = found.headers.get("etag") or found.headers.get("last-modified") or ""
        return ListedFile(path, parse_size(found.headers.get("content-length")), version)

    def read(self, path: str) -> ByteChunks:  # pragma: no cover  a download is stored as it comes, see fetch
        raise NotImplementedError(path)

    def move(self, entry: ListedFile, to: str) -> bool:
        raise InvalidInput(f"{entry.path} cannot be moved to {to}: files of the web are only remembered")

    def fetch_to_blob_store(self, entry: ListedFile, blobs: BlobStore, name: str, limits: FetchLimits) -> Blob:
        if entry.size is not None and entry.size > limits.max_bytes:
            raise TooLarge(f"it has more than {limits.max_bytes >> 20} MB")
        url = self._find_url(entry.path)
        remote = self._make_downloader(blobs, self._limits, is_own_server=self._is_own_server(url))
        try:
            return remote.download(url, name, should_continue=limits.should_continue).blob
        except InvalidInput as error:
            if self.find_entry(entry.path) is None:
                raise UnknownFile(str(error)) from None
            raise

    def _refresh_url_names(self) -> Sequence[str]:
        urls = self._address.urls
        if self._address.is_index:
            urls = tuple(self._read_index(urls[0]))
        if len(urls) > INDEX_FILES_MAX:
            raise InvalidInput(f"the index names more than {INDEX_FILES_MAX} files")
        self._urls = {make_display_url(url): url for url in urls}
        return list(self._urls)

    def _find_url(self, path: str) -> str:
        if path not in self._urls:
            self._refresh_url_names()
        if path not in self._urls:
            raise UnknownFile(f"there is no {path} any more")
        return self._urls[path]

    def _read_index(self, url: str) -> Iterator[str]:
        found = self._probe(url, "GET", max_body_bytes=INDEX_MAX_BYTES)
        _check_status(strip_query_and_fragment(url), found.status)
        if found.status in _MISSING_STATUSES:
            raise UnknownFile(f"{strip_query_and_fragment(url)}: there is no such index ({found.status})")
        for name in parse_index(found.body):
            try:
                yield urljoin(url, name).partition("#")[0]
            except ValueError:
                self.listing_errors.append(f"the index names what is no URL: {name[:INDEX_NAME_MAX_CHARS]}")

    def _probe(self, url: str, method: str, *, max_body_bytes: int = 0) -> ProbeResponse:
        return self._looking[self._is_own_server(url)].probe(
            url, method=method, max_body_bytes=max_body_bytes, should_continue=self.should_continue
        )

    def _is_own_server(self, url: str) -> bool:
        """Whether it is of a server that the watch itself names: an index may name any."""
        return _parse_origin(url) in self._origins

    def _make_downloader(self, blobs: BlobStore, limits: DownloadLimits, *, is_own_server: bool) -> Downloader:
        return Downloader(blobs, limits, authorization=self._authorization if is_own_server else None)


def _check_status(path: str, status: int) -> None:
    if status in _DENIED_STATUSES:
        raise StorageAccessDenied(f"{path}: {describe_status(status)}")
    if status in TRANSIENT_STATUSES:
        raise RemoteUnreachable(f"{path}: {describe_status(status)}")
    if status not in (HTTPStatus.OK, *_MISSING_STATUSES):
        raise InvalidInput(f"{path}: {describe_status(status)}")


def _parse_origin(url: str) -> tuple[str, str, int] | None:
    """None of what cannot be asked anyway."""
    try:
        return get_url_origin(httpx2.URL(url))
    except (httpx2.InvalidURL, ValueError, KeyError):
        return None


def make_display_url(url: str) -> str:
    """A URL as it is shown and kept: what follows the path may be a secret, and is only told apart."""
    shown = strip_query_and_fragment(url)
    return shown if shown == url else f"{shown}#{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def parse_index(index: bytes) -> list[str]:
    """A name or URL a line, a JSON list of them, or the links of a page; each once."""
    try:
        text = index.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("the index is not text") from None
    start = text.lstrip()[:1]
    if start == "[":
        found = _parse_json_index(text)
    elif start == "<":
        found = _parse_html_links(text)
    else:
        lines = (line.strip() for line in text.splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
    if any(not name.isprintable() for name in found):
        raise InvalidInput("the index has a name that cannot be shown")
    return list(dict.fromkeys(found))


def _parse_json_index(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("the index begins like JSON, and is none") from None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidInput("the index is JSON, but not a list of names")
    return found


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
    except (AssertionError, ValueError):  # the parser's own way to say so
        raise InvalidInput("the index begins like a page, and is none") from None
    return page.links
