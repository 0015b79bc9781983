"""The states of a watched file, and how the result of its job changes them."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from tidemill.core.errors import escape_unprintable
from tidemill.tables.resource import normalize_column_name

DRIFT_NAMES_MAX, DRIFT_NAME_MAX_CHARS = 10, 60  # in the reason for which a file is held
FILE_SIZE_MAX_BYTES, FILE_VERSION_MAX_CHARS = (1 << 63) - 1, 200
INVALID_SIZE_MESSAGE = "The server reports an invalid file size"


class FileState(StrEnum):
    SEEN = "seen"  # waits until it is complete
    TAKEN = "taken"  # a scanner has claimed it, and fetches and submits it
    HELD = "held"  # its columns differ from those of earlier files; waits until a user accepts or rejects it
    SUBMITTED = "submitted"  # a job exists that has not ingested the whole file yet
    PERSISTED = "persisted"  # all rows are stored; the file waits to be archived
    PROCESSED = "processed"  # stored and archived
    REJECTED = "rejected"  # cannot be ingested; the file waits to be archived
    FAILED = "failed"  # rejected and archived
    REFUSED = "refused"  # cannot be submitted, and stays at the source
    GONE = "gone"  # removed from the source before it was submitted


OPEN_FILE_STATES = (FileState.SEEN, FileState.TAKEN, FileState.SUBMITTED, FileState.PERSISTED, FileState.REJECTED)


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A file in a listing. ``version`` is its modification time or ETag, and changes when the file does."""

    path: str
    size: int | None
    version: str
    refusal_reason: str | None = None  # why the file cannot be submitted
    changed_at: float | None = field(default=None, compare=False)  # epoch seconds on the source's clock, if known

    def __post_init__(self) -> None:
        """Refuse a size that exceeds the database column, and replace a long or unprintable version with its digest."""
        if self.size is not None and self.size > FILE_SIZE_MAX_BYTES:
            object.__setattr__(self, "size", None)
            object.__setattr__(self, "refusal_reason", self.refusal_reason or INVALID_SIZE_MESSAGE)
        if len(self.version) > FILE_VERSION_MAX_CHARS or not self.version.isprintable():
            digest = hashlib.sha256(self.version.encode("utf-8", "surrogatepass")).hexdigest()
            object.__setattr__(self, "version", digest)

    def is_same_version(self, other: "ListedFile") -> bool:
        return (self.size, self.version) == (other.size, other.version)

    def is_older_than(self, other: "ListedFile") -> bool:
        """Return whether both times are known and this file is older."""
        return self.changed_at is not None and other.changed_at is not None and self.changed_at < other.changed_at


@dataclass(frozen=True, slots=True)
class WatchFile:
    """A stored file of a watch, in one version."""

    id: int
    watch: str
    source: str
    path: str
    size: int | None
    version: str
    tries: int
    state: FileState
    note: str | None
    owner_id: int | None
    file_id: str | None
    job_id: UUID | None
    moved_to: str | None
    seen_at: datetime
    at: datetime
    accepted: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "state", FileState(self.state))

    @property
    def listed_file(self) -> ListedFile:
        return ListedFile(self.path, self.size, self.version)


UNFINISHED_FILE_STATES = (*OPEN_FILE_STATES, FileState.HELD, FileState.FAILED)  # failed files can be retried


@dataclass(frozen=True, slots=True)
class RecordedFile:
    """The columns of a stored file that are needed to compare it with a listing."""

    id: int
    path: str
    size: int | None
    version: str
    state: str
    watch: str


@dataclass(frozen=True, slots=True)
class ListingChanges:
    """Differences between a listing and the stored files.

    ``changed`` contains waiting files with a new version, and files that were gone and exist again.
    """

    added: list[ListedFile]
    changed: list[tuple[RecordedFile, ListedFile]]


def find_new_and_changed_files(entries: Sequence[ListedFile], known: Iterable[RecordedFile]) -> ListingChanges:
    """Return the new and the changed files of a listing.

    Path, size and version identify a file. Each path has at most one waiting file.
    """
    versions, waiting = {}, {}
    for one in known:
        versions[one.path, one.size, one.version] = one
        if one.state == FileState.SEEN:
            waiting[one.path] = one
    added, changed = [], []
    for entry in entries:
        stored, waiting_file = versions.get((entry.path, entry.size, entry.version)), waiting.get(entry.path)
        if stored is None and waiting_file is None:
            added.append(entry)
        elif stored is None and waiting_file is not None:
            changed.append((waiting_file, entry))
        elif stored is not None and waiting_file is None and stored.state == FileState.GONE:
            changed.append((stored, entry))
    return ListingChanges(added, changed)


def find_orphaned_file_ids(known: Iterable[RecordedFile], declared: Collection[str]) -> list[int]:
    """Return the ids of unfinished files whose watch was renamed or removed."""
    return [one.id for one in known if one.watch not in declared and one.state in UNFINISHED_FILE_STATES]


@dataclass(frozen=True, slots=True)
class FileJobState:
    """The state of a file's job, which may have been deleted."""

    exists: bool
    ingest_done: bool = False
    closed_as: str | None = None
    failure_reason: str | None = None


def decide_file_state(facts: FileJobState) -> tuple[FileState, str | None] | None:
    """Return the new state of a submitted file and the reason, or None if its job is still reading it.

    The file is persisted when all its rows are stored, and rejected if its job ended before that.
    """
    if not facts.exists:
        return FileState.REJECTED, "The job was deleted before all rows were stored"
    if facts.ingest_done:
        return FileState.PERSISTED, None
    if facts.closed_as is None:
        return None
    reason = facts.failure_reason or f"The job ended as {facts.closed_as} before all rows were stored"
    return FileState.REJECTED, reason


def build_idempotency_key(file: WatchFile) -> str:
    """Return the idempotency key of the file's job. It is the same in every process and after a crash."""
    version = "\0".join((file.source, file.path, str(file.size), file.version, str(file.tries)))
    return f"watch {hashlib.sha256(version.encode()).hexdigest()}"


def describe_column_drift(before: Sequence[str], columns: Sequence[str], allowed: Collection[str]) -> str | None:
    """Return which columns are new or missing, if the drift is not allowed; None if the file can be submitted.

    Names are compared without case and punctuation. Their order does not matter.
    """
    known, given = set(map(normalize_column_name, before)), set(map(normalize_column_name, columns))
    changes = {
        "new": [name for name in columns if normalize_column_name(name) not in known],
        "missing": [name for name in before if normalize_column_name(name) not in given],
    }
    if not any(names for kind, names in changes.items() if kind not in allowed):
        return None
    return "; ".join(f"{kind}: {_format_columns(names)}" for kind, names in changes.items() if names)


def _format_columns(names: Sequence[str]) -> str:
    shown = ", ".join(f'"{escape_unprintable(name[:DRIFT_NAME_MAX_CHARS])}"' for name in names[:DRIFT_NAMES_MAX])
    return shown + (f" and {len(names) - DRIFT_NAMES_MAX:,} more" if len(names) > DRIFT_NAMES_MAX else "")
