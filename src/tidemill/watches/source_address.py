"""Addresses of watch sources. They contain no secrets: errors about an address never repeat it."""

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
    """A folder in TIDEMILL_SOURCES or a subfolder, such as ``inbox/daily``."""

    root: str
    path: str = ""

    @property
    def key(self) -> str:
        """The stored identifier of the source, unique among all sources."""
        return f"folder:{self}"

    def __str__(self) -> str:
        return f"{self.root}/{self.path}" if self.path else self.root


@dataclass(frozen=True, slots=True)
class HostAddress:
    """A folder on an FTP or SFTP server, such as ``sftp://ada@files.example.com/out``."""

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
    """URLs of files on web servers, or the URL of an index that lists them."""

    urls: tuple[str, ...]
    is_index: bool = False

    @property
    def key(self) -> str:
        """The same for all web addresses, because the complete URL identifies a file."""
        return "web"

    def __str__(self) -> str:
        """The first URL without query and fragment, which may contain secrets."""
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
    """Return the address of a source. Raise InvalidInput without repeating the address, which may contain a secret."""
    if isinstance(given, list | tuple):
        if not given or not all(isinstance(one, str) and _parse_scheme(one) in WEB_SCHEMES for one in given):
            raise InvalidInput("a list must contain one or more http or https URLs")
        return _parse_web_address(given, is_index=is_index)
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise InvalidInput("must be a folder in TIDEMILL_SOURCES or a URL")
    scheme = _parse_scheme(given)
    if is_index and scheme not in WEB_SCHEMES:
        raise InvalidInput("an index must be an http or https URL")
    if scheme in WEB_SCHEMES:
        return _parse_web_address([given], is_index=is_index)
    if scheme in DEFAULT_FILE_PORT_BY_SCHEME:
        return _parse_host_address(given)
    if scheme in BUCKETS:
        location = parse_blob_location(given)
        assert isinstance(location, BucketLocation)  # noqa: S101  the scheme is one of BUCKETS
        return location
    if scheme:
        known = ", ".join(f"{name}://" for name in (*BUCKETS, *DEFAULT_FILE_PORT_BY_SCHEME, *WEB_SCHEMES))
        raise InvalidInput(f"must start with one of {known}, or be a folder in TIDEMILL_SOURCES")
    return _parse_folder_address(given)


def _parse_scheme(text: str) -> str:
    scheme, separator, _ = text.partition("://")
    return scheme.lower() if separator else ""


def _parse_folder_address(text: str) -> FolderAddress:
    root, _, path = text.strip().rstrip("/").partition("/")
    if not _SOURCE_ROOT_PATTERN.fullmatch(root):
        raise InvalidInput("must start with a folder name from TIDEMILL_SOURCES, such as inbox/daily, not a path")
    if any(part in ("", ".", "..") for part in path.split("/")) and path:
        raise InvalidInput('a subfolder must not contain empty, "." or ".." segments')
    return FolderAddress(root, path)


def _parse_host_address(text: str) -> HostAddress:
    try:
        parts = urlsplit(text)
        port, password = parts.port, parts.password
    except ValueError:
        raise InvalidInput("invalid URL; write it as sftp://user@host/folder") from None
    if password is not None:
        raise InvalidInput(
            "remove the password from the URL; set password_env to the environment variable that contains it"
        )
    if parts.query or parts.fragment:
        raise InvalidInput('must not contain "?" or "#"; write it as sftp://user@host/folder')
    host = parts.hostname or ""
    if not _SOURCE_HOST_PATTERN.fullmatch(host):
        raise InvalidInput("the URL has no host, or its host is invalid")
    path = parts.path.removeprefix("/").rstrip("/")  # /folder is relative to the user's home, //folder is absolute
    if path and any(part in (".", "..", "") for part in path.removeprefix("/").split("/")):
        raise InvalidInput('the folder must not contain empty, "." or ".." segments')
    return HostAddress(
        parts.scheme, host, port or DEFAULT_FILE_PORT_BY_SCHEME[parts.scheme], parts.username or "", path
    )


def _parse_web_address(given: Sequence[str], *, is_index: bool) -> WebAddress:
    for one in given:
        try:
            parts = urlsplit(one)
            _ = parts.port
        except ValueError:
            raise InvalidInput("invalid URL") from None
        if parts.username is not None or parts.password is not None:
            raise InvalidInput(
                "remove the user and the password from the URL; set authorization_env to the environment variable "
                "that contains the Authorization header"
            )
        if not parts.hostname:
            raise InvalidInput("a URL has no host")
    if is_index and len(given) > 1:
        raise InvalidInput("an index must be one URL")
    if len(set(given)) < len(given):
        raise InvalidInput("the list contains a URL twice")
    return WebAddress(tuple(given), is_index)
