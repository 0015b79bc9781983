"""A watch: its source, its task and its schedule. Also detects watches that overlap."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from tidemill.core.blob_location import BUCKET_SCHEMES as BUCKETS
from tidemill.core.blob_location import BucketLocation, parse_blob_location
from tidemill.core.errors import InvalidInput
from tidemill.runtime import FileTask
from tidemill.watches.file_names import FilePattern

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


DURATION_UNIT_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3_600, "d": 86_400}
SCAN_BACKOFF_MAX_S = 900.0
ARCHIVE_CHECK_MIN_S, ARCHIVE_CHECK_MAX_S = (
    1.0,
    60.0,
)  # between checks of the jobs of files; the interval grows with the age of a job
_DURATION_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)")


def parse_duration_s(text: str) -> float:
    """Return the seconds of a duration such as ``90s``, ``5m``, ``2h`` or ``1d``. Raise ValueError if it is invalid."""
    match_ = _DURATION_PATTERN.fullmatch(text.strip().lower())
    if match_ is None:
        raise ValueError("Input should be a duration, such as 30s, 5m, 2h or 1d")
    return float(match_[1]) * DURATION_UNIT_SECONDS[match_[2]]


def compute_scan_delay(every: float, failures: int) -> float:
    """Return the seconds until the next scan. They double with each failure, up to ``SCAN_BACKOFF_MAX_S``."""
    return max(every, min(every * 2.0 ** min(failures, 20), SCAN_BACKOFF_MAX_S))


DEFAULT_PROCESSED_FOLDER, DEFAULT_FAILED_FOLDER = "processed", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceAccess:
    """Credentials of a source: names of environment variables and of files, never a secret itself."""

    password_env: str | None = None
    key_env: str | None = None
    key_file: str | None = None
    passphrase_env: str | None = None
    known_hosts: str | None = None
    ca_file: str | None = None
    authorization_env: str | None = None
    access_key_env: str | None = None
    secret_key_env: str | None = None
    endpoint: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    name: str
    source: SourceAddress
    task: FileTask
    pattern: FilePattern = field(default_factory=FilePattern)
    owner: str = "local"
    every: float | None = 60.0  # seconds; None: only on request
    marker: str | None = None
    stable_for: float = 5.0
    moves: bool = True
    processed: str = DEFAULT_PROCESSED_FOLDER
    failed: str = DEFAULT_FAILED_FOLDER
    layout: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    allowed_drift: tuple[str, ...] = ()  # changes of columns for which a file is not held
    access: SourceAccess = field(default_factory=SourceAccess)

    @property
    def source_key(self) -> str:
        """Identifies the source, so that its files are submitted once even if the watch is renamed."""
        return get_source_key(self.source)

    @property
    def archives_files(self) -> bool:
        return self.moves and not isinstance(self.source, WebAddress)

    @property
    def source_kind(self) -> str:
        return get_source_kind(self.source)

    def is_archived_path(self, path: str) -> bool:
        """Return whether the path is in an archive folder of this watch, or of a watch on a subfolder."""
        return any(folder in (self.processed, self.failed) for folder in path.split("/")[:-1])

    def accepts_path(self, path: str) -> bool:
        """Return whether a file with this path is submitted when it is complete."""
        is_marker = self.marker is not None and path.endswith(self.marker)
        return not is_marker and not self.is_archived_path(path) and self.pattern.matches(path)


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The resolved location of a source: its host or store, and its folders."""

    store: tuple[object, ...]
    parts: tuple[str, ...]

    def get_folders_below(self, outer: "SourceLocation") -> tuple[str, ...] | None:
        """Return the folders from an outer location to this one, or None if this one is not inside it."""
        if self.store != outer.store or self.parts[: len(outer.parts)] != outer.parts:
            return None
        return self.parts[len(outer.parts) :]


def find_overlap_problems(watches: Iterable[Watch], folders: Mapping[str, PurePath]) -> Iterator[str]:
    """Yield a message for each pair of watches that would submit a file twice.

    ``folders`` maps the names of watches to their local folders.
    """
    located = [
        (watch, location)
        for watch in watches
        if (location := _locate_source(watch, folders.get(watch.name))) is not None
    ]
    for (outer, outer_location), (inner, inner_location) in permutations(located, 2):
        below = inner_location.get_folders_below(outer_location)
        if below is not None and (below or outer.name < inner.name or outer.source_key == inner.source_key):
            problem = _explain_overlap(outer, inner, below)
            if problem is not None:
                yield f"watches.{inner.name}.source: {problem}"


def _locate_source(watch: Watch, folder: PurePath | None) -> SourceLocation | None:
    """Return the location of a source, or None for HTTP sources, whose files are identified by the complete URL."""
    match watch.source:
        case FolderAddress():
            return None if folder is None else SourceLocation(("folder",), folder.parts)
        case BucketLocation(scheme, bucket, prefix):
            return SourceLocation((scheme, bucket, watch.access.endpoint), _split_path(prefix))
        case HostAddress(scheme, host, port, user, path):
            return SourceLocation((scheme, host, port, user, path.startswith("/")), _split_path(path))
        case _:
            return None


def _split_path(path: str) -> tuple[str, ...]:
    return tuple(filter(None, path.split("/")))


def _explain_overlap(outer: Watch, inner: Watch, below: tuple[str, ...]) -> str | None:
    if not below and outer.source_key != inner.source_key:
        return (
            f'"{inner.source}" and "{outer.source}" are the same folder, which watch "{outer.name}" uses already; '
            "use the same name in both watches"
        )
    if (
        outer.archives_files
        and outer.is_archived_path("/".join((*below[:1], "")))
        and outer.pattern.can_overlap(inner.pattern)
    ):
        return f'watch "{outer.name}" archives its files in this folder, so they would be submitted twice'
    archive_folders = [(*below, name) for name in (inner.processed, inner.failed) if inner.archives_files]
    for folder in [below, *archive_folders] if below else archive_folders:
        if not outer.is_archived_path("/".join((*folder, ""))) and outer.pattern.can_overlap(
            inner.pattern, "/".join(folder)
        ):
            return (
                f'watch "{outer.name}" on "{outer.source}" also matches files in its subfolder "{"/".join(folder)}", '
                "so they would be submitted twice; exclude them in its pattern, or watch only one of the folders"
            )
    return None
