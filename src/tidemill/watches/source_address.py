"""Where the files of a watch are. Addresses hold no secrets: what could be one is refused, and not repeated."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tidemill.core.blob_location import BUCKET_SCHEMES as BUCKETS
from tidemill.core.blob_location import BucketLocation, parse_blob_location
from tidemill.core.errors import InvalidInput

DEFAULT_FILE_PORT_BY_SCHEME = {"ftp": 21, "ftps": 990, "ftpes": 21, "sftp": 22}
WEB_SCHEMES = ("http", "https")
_SOURCE_ROOT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._ -]*")
_SOURCE_HOST_PATTERN = re.compile(r"[A-Za-z0-9_.-]+|[0-9A-Fa-f:.]+")


@dataclass(frozen=True, slots=True)
class FolderAddress:
    """A folder of TIDEMILL_SOURCES, or one inside it: ``inbox/daily``."""

    root: str
    path: str = ""

    @property
    def key(self) -> str:
        """What tells it from every other source, also in a database."""
        return f"folder:{self}"

    def __str__(self) -> str:
        return f"{self.root}/{self.path}" if self.path else self.root


@dataclass(frozen=True, slots=True)
class HostAddress:
    """A folder of another machine: ``sftp://ada@files.example.com/out``."""

    scheme: str
    host: str
    port: int
    user: str = ""
    path: str = ""

    @property
    def key(self) -> str:
        return str(self)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_FILE_PORT_BY_SCHEME[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.user + '@' if self.user else ''}{host}{port}/{self.path}"


@dataclass(frozen=True, slots=True)
class WebAddress:
    """Files of the web, by their URLs, or an index of them."""

    urls: tuple[str, ...]
    is_index: bool = False

    @property
    def key(self) -> str:
        """The same for all: each file is known by its whole URL."""
        return "web"

    def __str__(self) -> str:
        """Without what may be a secret."""
        more = f" and {len(self.urls) - 1} more" if len(self.urls) > 1 else ""
        return strip_query_and_fragment(self.urls[0]) + more


SourceAddress = FolderAddress | BucketLocation | HostAddress | WebAddress


def get_source_key(address: SourceAddress) -> str:
    return str(address) if isinstance(address, BucketLocation) else address.key


def get_source_kind(address: SourceAddress) -> str:
    """``folder``, ``http``, or the scheme of a host or a bucket."""
    match address:
        case FolderAddress():
            return "folder"
        case WebAddress():
            return "http"
        case _:
            return address.scheme


def strip_query_and_fragment(url: str) -> str:
    return url.partition("#")[0].partition("?")[0]


def parse_source_address(given: Any, *, is_index: bool = False) -> SourceAddress:
    """InvalidInput says what is wrong; nothing of an address that may hold a secret is repeated."""
    if isinstance(given, list | tuple):
        if not given or not all(isinstance(one, str) and _parse_scheme(one) in WEB_SCHEMES for one in given):
            raise InvalidInput("a list has one or more http or https URLs, and nothing else")
        return _parse_web_address(given, is_index=is_index)
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InvalidInput("a folder of TIDEMILL_SOURCES, or an address, is wanted")
    scheme = _parse_scheme(given)
    if is_index and scheme not in WEB_SCHEMES:
        raise InvalidInput("only a file of the web, http or https, can be an index")
    if scheme in WEB_SCHEMES:
        return _parse_web_address([given], is_index=is_index)
    if scheme in DEFAULT_FILE_PORT_BY_SCHEME:
        return _parse_host_address(given)
    if scheme in BUCKETS:
        found = parse_blob_location(given)
        assert isinstance(found, BucketLocation)  # noqa: S101  by its scheme
        return found
    if scheme:
        known = ", ".join(f"{name}://" for name in (*BUCKETS, *DEFAULT_FILE_PORT_BY_SCHEME, *WEB_SCHEMES))
        raise InvalidInput(f"an address begins with one of {known}; a folder is one of TIDEMILL_SOURCES")
    return _parse_folder_address(given)


def _parse_scheme(text: str) -> str:
    before, found, _ = text.partition("://")
    return before.lower() if found else ""


def _parse_folder_address(text: str) -> FolderAddress:
    root, _, path = text.strip().rstrip("/").partition("/")
    if not _SOURCE_ROOT_PATTERN.fullmatch(root):
        raise InvalidInput("a folder begins with a name of TIDEMILL_SOURCES, as in inbox/daily; it is no path")
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise InvalidInput("a folder inside a source is words between slashes, without dots that lead out of it")
    return FolderAddress(root, path)


def _parse_host_address(text: str) -> HostAddress:
    try:
        parts = urlsplit(text)
        port, password = parts.port, parts.password
    except ValueError:
        raise InvalidInput("this is not an address, like sftp://user@host/folder") from None
    if password is not None:
        raise InvalidInput(
            "a password does not belong into an address: say password_env, the name of a variable that holds it"
        )
    if parts.query or parts.fragment:
        raise InvalidInput("an address has no ? and no #: it is a host and a folder")
    host = parts.hostname or ""
    if not _SOURCE_HOST_PATTERN.fullmatch(host):
        raise InvalidInput("the address has no host, or one that cannot be")
    path = parts.path.removeprefix("/").rstrip("/")  # //folder is one of the machine, /folder one of the user
    if path and any(part in (".", "..", "") for part in path.removeprefix("/").split("/")):
        raise InvalidInput("the folder is words between slashes, without dots that lead out of it")
    return HostAddress(
        parts.scheme, host, port or DEFAULT_FILE_PORT_BY_SCHEME[parts.scheme], parts.username or "", path
    )


def _parse_web_address(given: Sequence[str], *, is_index: bool) -> WebAddress:
    for one in given:
        try:
            parts = urlsplit(one)
            _ = parts.port
        except ValueError:
            raise InvalidInput("one of the URLs is none") from None
        if parts.username is not None or parts.password is not None:
            raise InvalidInput(
                "a user or a password does not belong into a URL: say authorization_env, the name of a variable "
                "that holds the Authorization header"
            )
        if not parts.hostname:
            raise InvalidInput("one of the URLs has no host")
    if is_index and len(given) > 1:
        raise InvalidInput("an index is one URL")
    if len(set(given)) < len(given):
        raise InvalidInput("the same URL is in the list twice")
    return WebAddress(tuple(given), is_index)
