"""Files of the web: those of a list, or those that an index names. They cannot be moved."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from http import HTTPStatus
from urllib.parse import urljoin

import httpx2

from tidemill.connectors.blobs import Blob, Blobs
from tidemill.connectors.inlets.base import Bounds, Inlet, Pieces, size_of
from tidemill.connectors.remote.answers import PASSING, describe
from tidemill.connectors.remote.download import Glance, Remote
from tidemill.connectors.remote.limits import RemoteLimits
from tidemill.connectors.remote.links import origin_of
from tidemill.domain.errors import InvalidInput, StoreDenied, TooLarge, UnknownFile, Unreachable
from tidemill.domain.watching import Entry, LinksAddress
from tidemill.domain.watching.address import bare

INDEX_MAX = 4 << 20
FILES_MAX = 10_000
LOOK_S = 15.0
SHOWN = 100
GIVE_UP = 5  # files of which nobody answers, one after the other: the others would take as long
_NO_HEAD = (400, 403, 405, 501)  # also from stores whose links are signed for GET alone
_MISSING = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)
_DENIED = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)


class WebInlet(Inlet):
    """Speaks only to machines that downloads may speak to."""

    def __init__(self, address: LinksAddress, blobs: Blobs, limits: RemoteLimits, authorization: str | None) -> None:
        self._address = address
        self._limits = limits
        self._authorization = authorization
        self._origins = {_origin(url) for url in address.urls}
        looking = replace(limits, total_s=LOOK_S)
        self._looking = {is_ours: self._remote(blobs, looking, is_ours=is_ours) for is_ours in (True, False)}
        self.troubles: list[str] = []
        self._urls: dict[str, str] = {}  # whole, by what they are called here

    def list(self, *, deep: bool, skip: frozenset[str]) -> Iterator[Entry]:  # noqa: ARG002  there are no folders
        self.troubles = []
        in_a_row = 0
        for path in self._known():
            self.insist()
            try:
                entry = self.look(path)
            except (StoreDenied, Unreachable, InvalidInput) as error:
                self.troubles.append(str(error))
                in_a_row = in_a_row + 1 if isinstance(error, Unreachable) else 0  # a refusal says nothing of others
                if in_a_row >= GIVE_UP:
                    return
                continue
            in_a_row = 0
            if entry is None:
                self.troubles.append(f"{path}: there is no such file")
            else:
                yield entry

    def look(self, path: str) -> Entry | None:
        found = self._glance(self._url(path), "HEAD")
        if found.status in _NO_HEAD:
            found = self._glance(self._url(path), "GET")
        if found.status in _MISSING:
            return None
        _refuse(path, found.status)
        version = found.headers.get("etag") or found.headers.get("last-modified") or ""
        return Entry(path, size_of(found.headers.get("content-length")), version)

    def read(self, path: str) -> Pieces:  # pragma: no cover  a download is stored as it comes, see fetch
        raise NotImplementedError(path)

    def move(self, entry: Entry, to: str) -> bool:
        raise InvalidInput(f"{entry.path} cannot be moved to {to}: files of the web are only remembered")

    def fetch(self, entry: Entry, blobs: Blobs, name: str, bounds: Bounds) -> Blob:
        if entry.size is not None and entry.size > bounds.max_bytes:
            raise TooLarge(f"it has more than {bounds.max_bytes >> 20} MB")
        url = self._url(entry.path)
        remote = self._remote(blobs, self._limits, is_ours=self._is_ours(url))
        try:
            return remote.download(url, name, going_on=bounds.going_on).blob
        except InvalidInput as error:
            if self.look(entry.path) is None:
                raise UnknownFile(str(error)) from None
            raise

    def _known(self) -> Sequence[str]:
        urls = self._address.urls
        if self._address.is_index:
            urls = tuple(self._index(urls[0]))
        if len(urls) > FILES_MAX:
            raise InvalidInput(f"the index names more than {FILES_MAX} files")
        self._urls = {called(url): url for url in urls}
        return list(self._urls)

    def _url(self, path: str) -> str:
        if path not in self._urls:
            self._known()
        if path not in self._urls:
            raise UnknownFile(f"there is no {path} any more")
        return self._urls[path]

    def _index(self, url: str) -> Iterator[str]:
        found = self._glance(url, "GET", most=INDEX_MAX)
        _refuse(bare(url), found.status)
        if found.status in _MISSING:
            raise UnknownFile(f"{bare(url)}: there is no such index ({found.status})")
        for name in names_of(found.body):
            try:
                yield urljoin(url, name).partition("#")[0]
            except ValueError:
                self.troubles.append(f"the index names what is no URL: {name[:SHOWN]}")

    def _glance(self, url: str, method: str, *, most: int = 0) -> Glance:
        return self._looking[self._is_ours(url)].glance(url, method=method, most=most, going_on=self.going_on)

    def _is_ours(self, url: str) -> bool:
        """Whether it is of a server that the watch itself names: an index may name any."""
        return _origin(url) in self._origins

    def _remote(self, blobs: Blobs, limits: RemoteLimits, *, is_ours: bool) -> Remote:
        return Remote(blobs, limits, authorization=self._authorization if is_ours else None)


def _refuse(path: str, status: int) -> None:
    if status in _DENIED:
        raise StoreDenied(f"{path}: {describe(status)}")
    if status in PASSING:
        raise Unreachable(f"{path}: {describe(status)}")
    if status not in (HTTPStatus.OK, *_MISSING):
        raise InvalidInput(f"{path}: {describe(status)}")


def _origin(url: str) -> tuple[str, str, int] | None:
    """None of what cannot be asked anyway."""
    try:
        return origin_of(httpx2.URL(url))
    except (httpx2.InvalidURL, ValueError, KeyError):
        return None


def called(url: str) -> str:
    """A URL as it is shown and kept: what follows the path may be a secret, and is only told apart."""
    shown = bare(url)
    return shown if shown == url else f"{shown}#{hashlib.sha256(url.encode()).hexdigest()[:12]}"


def names_of(index: bytes) -> list[str]:
    """A name or URL a line, a JSON list of them, or the links of a page; each once."""
    try:
        text = index.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("the index is not text") from None
    start = text.lstrip()[:1]
    if start == "[":
        found = _json(text)
    elif start == "<":
        found = _links(text)
    else:
        lines = (line.strip() for line in text.splitlines())
        found = [line for line in lines if line and not line.startswith("#")]
    if any(not name.isprintable() for name in found):
        raise InvalidInput("the index has a name that cannot be shown")
    return list(dict.fromkeys(found))


def _json(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("the index begins like JSON, and is none") from None
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InvalidInput("the index is JSON, but not a list of names")
    return found


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        link = dict(attrs).get("href") if tag == "a" else None
        if link and not link.startswith(("#", "?")) and not bare(link).endswith("/"):
            self.links.append(link)


def _links(text: str) -> list[str]:
    page = _Page()
    try:
        page.feed(text)
    except (AssertionError, ValueError):  # the parser's own way to say so
        raise InvalidInput("the index begins like a page, and is none") from None
    return page.links
