"""Taking the body of one answer into a part: from its first byte, or from where the part ends."""

import contextlib

import httpcore2
import httpx2

from tidemill.connectors.remote.answers import (
    OK,
    PARTIAL,
    describe,
    length_of,
    range_of,
    refuse_encoding,
    validator_of,
)
from tidemill.connectors.remote.limits import Watch
from tidemill.connectors.remote.links import bare, name_of
from tidemill.connectors.remote.part import About, Part
from tidemill.connectors.remote.wire import Strand
from tidemill.domain.errors import InvalidInput, TooLarge

UNSATISFIABLE = 416
LINGER_S = 0.3  # for a server that was asked to close the connection
LONGER = "the server sends more than it announced"


class Again(Exception):
    """Not this time; after so many seconds, if the server says."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


def asking(link: httpx2.URL) -> dict[str, str]:
    """What every request says."""
    return {
        "Host": link.netloc.decode("ascii"),
        "User-Agent": "tidemill",
        "Accept": "*/*",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }


class Portion:
    """One request for what is missing of a part."""

    def __init__(self, part: Part, link: httpx2.URL, max_bytes: int) -> None:
        self._part = part
        self._link = link
        self._max_bytes = max_bytes
        about = part.about
        self._is_rest = bool(part.size and about and about.validator and about.url == bare(link))
        self.headers = self._headers()

    def _headers(self) -> list[tuple[str, str]]:
        headers = asking(self._link)
        if self._is_rest and self._part.about is not None:
            headers |= {"Range": f"bytes={self._part.size}-", "If-Range": str(self._part.about.validator)}
        return list(headers.items())

    def take(self, response: httpcore2.Response, headers: httpx2.Headers, watch: Watch) -> None:
        """The body. The part is whole afterwards, unless the server gave only some of the rest."""
        if response.status == OK:
            refuse_encoding(headers)
            length = length_of(headers)
            self._refuse_beyond_the_limit(length)
            self._part.begin(self._describe(headers, length))
        elif response.status == PARTIAL and self._is_rest:
            length = self._go_on(headers)
        elif response.status == UNSATISFIABLE and self._is_rest:
            raise self._start_over("the server has less than what is here")
        else:
            raise InvalidInput(describe(response.status))
        self._copy(response, watch)
        self._refuse_more_than(length, response)
        if self._part.about is not None and self._part.about.total is None:
            self._part.know_total(self._part.size)

    def _describe(self, headers: httpx2.Headers, total: int | None) -> About:
        return About(
            bare(self._link),
            validator_of(headers),
            total,
            name_of(self._link, headers.get("content-disposition")),
            headers.get("content-type"),
            headers.get("etag"),
        )

    def _go_on(self, headers: httpx2.Headers) -> int | None:
        """The rest is of the same file, and begins where the part ends; its length, if it is announced."""
        piece, about, part = range_of(headers), self._part.about, self._part
        if piece is None or about is None or piece.first != part.size or not piece.first <= piece.last < piece.total:
            raise self._start_over("the server sent another part than it was asked for")
        if about.total not in (None, piece.total) or headers.get("etag", about.etag) != about.etag:
            raise self._start_over("the file has changed")
        self._refuse_beyond_the_limit(piece.total)
        length = length_of(headers)
        if length not in (None, piece.last - piece.first + 1):
            raise self._start_over("the server contradicts itself")
        part.know_total(piece.total)
        return length

    def _start_over(self, reason: str) -> Again:
        self._part.forget()
        return Again(reason)

    def _copy(self, response: httpcore2.Response, watch: Watch) -> None:
        about, before = self._part.about, self._part.size
        total = about.total if about else None
        for piece in response.iter_stream():
            watch.check()
            size = self._part.size + len(piece)
            if total is not None and size > total:
                raise InvalidInput(LONGER)
            self._refuse_beyond_the_limit(size)
            self._part.append(piece)
        if total is not None and self._part.size == before != total:
            raise Again("the server sent nothing")

    def _refuse_beyond_the_limit(self, size: int | None) -> None:
        if size is not None and size > self._max_bytes:
            raise TooLarge(f"the file is larger than {self._max_bytes} bytes")

    def _refuse_more_than(self, length: int | None, response: httpcore2.Response) -> None:
        """A length that was counted wrong cuts the file short: then there is more of it on the connection."""
        stream = response.extensions["network_stream"]
        if length is None or not isinstance(stream, Strand):
            return
        with contextlib.suppress(httpcore2.TimeoutException, httpcore2.NetworkError):
            stream.read(1, LINGER_S)
        if stream.body > length:
            raise InvalidInput(LONGER)
