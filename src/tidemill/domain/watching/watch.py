"""A watch: files that come by themselves become jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidemill.domain.importing import ImportRequest
from tidemill.domain.place import BucketPlace
from tidemill.domain.watching.address import Address, LinksAddress, key_of
from tidemill.domain.watching.names import Pattern

PROCESSED, FAILED = "processed", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How to be let in: names of environment variables, and of files; never a secret itself."""

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
class JobTask:
    """Each file becomes a job of this kind."""

    kind: str
    params: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"job {self.kind}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportTask:
    """Each file is imported into this resource."""

    resource: str
    request: ImportRequest = field(default_factory=ImportRequest)

    def __str__(self) -> str:
        return f"import into {self.resource}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    name: str
    source: Address
    task: JobTask | ImportTask
    pattern: Pattern = field(default_factory=Pattern)
    owner: str = "local"
    every: float | None = 60.0  # seconds; None: only when somebody asks
    marker: str | None = None
    stable_for: float = 5.0
    moves: bool = True
    processed: str = PROCESSED
    failed: str = FAILED
    layout: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)
    priority: int = 0
    access: Access = field(default_factory=Access)

    @property
    def key(self) -> str:
        """Which source it is: a file of one is taken once, whatever its watch is called."""
        return key_of(self.source)

    @property
    def can_move(self) -> bool:
        return self.moves and not isinstance(self.source, LinksAddress)

    @property
    def kind_of_source(self) -> str:
        match self.source:
            case BucketPlace():
                return self.source.scheme
            case LinksAddress():
                return "http"
            case _:
                return getattr(self.source, "scheme", "folder")

    def is_ours(self, path: str) -> bool:
        """Whether it lies where we put files ourselves, or where a watch of a folder below puts them, or once did."""
        return any(folder in (self.processed, self.failed) for folder in path.split("/")[:-1])

    def is_wanted(self, path: str) -> bool:
        """Whether a file of that name is to be taken, once it is whole."""
        is_marker = self.marker is not None and path.endswith(self.marker)
        return not is_marker and not self.is_ours(path) and self.pattern.matches(path)
